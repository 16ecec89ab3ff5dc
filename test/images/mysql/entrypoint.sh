#!/bin/bash
# The official image's first start, as far as tests use it: a data directory, root's password, a database
# and a user from MYSQL_*, the files of /docker-entrypoint-initdb.d; then the server as PID 1.
# The image of MariaDB uses this same file with SERVER=mariadbd.
set -euo pipefail
server=${SERVER:-mysqld} client=${CLIENT:-mysql} flavour=${FLAVOUR:-MySQL Community Server}
datadir=/var/lib/mysql sock=/var/run/mysqld/mysqld.sock port=3306

log() { echo "[entrypoint] $*"; }
die() { log "ERROR: $*" >&2; exit 1; }
quoted() { printf %s "$1" | sed -e 's/\\/\\\\/g' -e "s/'/''/g"; }
ident() { printf %s "$1" | sed 's/`/``/g'; }

[ "${1:0:1}" != - ] || set -- "$server" "$@"
if [ "${1:-}" = mysqld ]; then shift; set -- "$server" "$@"; fi
[ "${1:-}" = "$server" ] || exec "$@"
for a; do
	case $a in
	--help | --version | -V) exec "$@" ;;
	--datadir=*) datadir=${a#*=} ;;
	--socket=*) sock=${a#*=} ;;
	--port=*) port=${a#*=} ;;
	esac
done
for v in ROOT_PASSWORD ROOT_HOST DATABASE USER PASSWORD ALLOW_EMPTY_PASSWORD; do
	m=MARIADB_$v n=MYSQL_$v f=MYSQL_${v}_FILE
	[ -z "${!m:-}" ] || export "$n=${!m}"
	[ -z "${!f:-}" ] || export "$n=$(cat "${!f}")"
done

if [ ! -d "$datadir/mysql" ]; then
	[ -n "${MYSQL_ROOT_PASSWORD:-}${MYSQL_ALLOW_EMPTY_PASSWORD:-}${MARIADB_ALLOW_EMPTY_ROOT_PASSWORD:-}" ] || die "MYSQL_ROOT_PASSWORD is not set"
	mkdir -p "$datadir"
	chown mysql:mysql "$datadir"
	case "$*" in
	# What shapes the data directory cannot come from the prepared one.
	*lower*case*table* | *innodb*page*size* | *innodb*undo* | *innodb*data*)
		[ "$server" = mysqld ] || die "$server with $* needs a data directory made for it"
		"$@" --initialize-insecure ;;
	*) cp -a --sparse=always /opt/seed/data/. "$datadir/" ;;
	esac

	# Accounts belong to this server and stay out of its binlog.
	first=/var/run/mysqld/first-start.sql
	pw=$(quoted "${MYSQL_ROOT_PASSWORD:-}") host=${MYSQL_ROOT_HOST-%}
	{
		echo "SET @@SESSION.SQL_LOG_BIN=0;"
		echo "ALTER USER 'root'@'localhost' IDENTIFIED BY '$pw';"
		if [ -n "$host" ] && [ "$host" != localhost ]; then
			echo "CREATE USER 'root'@'$(quoted "$host")' IDENTIFIED BY '$pw';"
			echo "GRANT ALL ON *.* TO 'root'@'$(quoted "$host")' WITH GRANT OPTION;"
		fi
		echo "SET @@SESSION.SQL_LOG_BIN=1;"
		[ -z "${MYSQL_DATABASE:-}" ] || echo "CREATE DATABASE IF NOT EXISTS \`$(ident "$MYSQL_DATABASE")\`;"
		if [ -n "${MYSQL_USER:-}" ]; then
			echo "CREATE USER '$(quoted "$MYSQL_USER")'@'%' IDENTIFIED BY '$(quoted "${MYSQL_PASSWORD:-}")';"
			[ -z "${MYSQL_DATABASE:-}" ] || echo "GRANT ALL ON \`$(ident "$MYSQL_DATABASE")\`.* TO '$(quoted "$MYSQL_USER")'@'%';"
		fi
	} >"$first"
	chown mysql:mysql "$first"
	chmod 600 "$first"

	shopt -s nullglob
	scripts=(/docker-entrypoint-initdb.d/*)
	if [ ${#scripts[@]} -gt 0 ]; then
		# Scripts speak through a client, so a server without network runs them first.
		"$@" --datadir="$datadir" --socket="$sock" --skip-networking --init-file="$first" &
		pid=$!
		export MYSQL_PWD=${MYSQL_ROOT_PASSWORD:-}
		c=("$client" --protocol=socket --socket="$sock" -uroot -hlocalhost)
		for _ in $(seq 600); do
			! "${c[@]}" -e 'SELECT 1' >/dev/null 2>&1 || break
			kill -0 $pid 2>/dev/null || die "the server for the scripts ended"
			sleep 0.1
		done
		[ -z "${MYSQL_DATABASE:-}" ] || c+=("--database=$MYSQL_DATABASE")
		for f in "${scripts[@]}"; do
			log "running $f"
			case $f in
			*.sh) if [ -x "$f" ]; then "$f"; else . "$f"; fi ;;
			*.sql) "${c[@]}" <"$f" ;;
			*.sql.gz) gzip -dc "$f" | "${c[@]}" ;;
			esac
		done
		kill $pid
		wait $pid || die "the server for the scripts failed"
		unset MYSQL_PWD
	else
		set -- "$@" --init-file="$first"
	fi
fi

# Wait strategies look for the server's own line with the official build's words in it; the port accepts
# connections before --init-file has run, so that line is printed when the server really talks.
(
	export MYSQL_PWD=${MYSQL_ROOT_PASSWORD:-}
	for _ in $(seq 1200); do
		if out=$("$client" --protocol=socket --socket="$sock" -uroot -hlocalhost -e 'SELECT 1' 2>&1) || [[ $out == *"ERROR 1045"* ]]; then
			echo "[entrypoint] ready for connections. socket: '$sock'  port: $port  $flavour (local test build)"
			rm -f /var/run/mysqld/first-start.sql
			exit
		fi
		sleep 0.1
	done
) &
exec "$@" --datadir="$datadir"
