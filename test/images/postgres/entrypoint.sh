#!/bin/bash
# The official image's first start, as far as tests use it: initdb, the role and database of POSTGRES_*,
# the files of /docker-entrypoint-initdb.d; then the server as PID 1.
set -euo pipefail
log() { echo "[entrypoint] $*"; }
die() { log "ERROR: $*" >&2; exit 1; }

[ "${1:0:1}" != - ] || set -- postgres "$@"
[ "${1:-}" = postgres ] || exec "$@"
for a; do case $a in --help | --version | -V) exec "$@" ;; esac; done

export PGDATA=${PGDATA:-/var/lib/postgresql/data}
for v in POSTGRES_PASSWORD POSTGRES_USER POSTGRES_DB; do
	f=${v}_FILE
	[ -z "${!f:-}" ] || export "$v=$(cat "${!f}")"
done
if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA"
	chown -R postgres:postgres "$PGDATA"
	chmod 700 "$PGDATA"
	exec setpriv --reuid postgres --regid postgres --init-groups -- "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	user=${POSTGRES_USER:-postgres} auth=${POSTGRES_HOST_AUTH_METHOD:-}
	db=${POSTGRES_DB:-$user}
	export POSTGRES_USER=$user POSTGRES_DB=$db
	[ -n "${POSTGRES_PASSWORD:-}" ] || [ "$auth" = trust ] || die "POSTGRES_PASSWORD is not set"
	# shellcheck disable=SC2086
	initdb --username="$user" --pwfile=<(printf '%s\n' "${POSTGRES_PASSWORD:-}") --auth-local=trust --auth-host=trust \
		--no-sync --no-instructions ${POSTGRES_INITDB_ARGS:-} >/dev/null
	printf '\nhost all all all %s\n' "${auth:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
	# An embedded server's own default for the socket is another folder than psql's.
	printf "%s = '%s'\n" listen_addresses '*' unix_socket_directories /var/run/postgresql >>"$PGDATA/postgresql.conf"

	# Database and scripts are made on a server without network: the port opens when all is there.
	opts="-c listen_addresses='' -p ${PGPORT:-5432}"
	[ $# -le 1 ] || opts="$(printf '%q ' "${@:2}") $opts"
	PGUSER=$user pg_ctl -D "$PGDATA" -o "$opts" -w -s start
	c=(psql -v ON_ERROR_STOP=1 --no-password --no-psqlrc --username "$user")
	[ "$db" = postgres ] || "${c[@]}" --dbname postgres -q -v db="$db" <<<'CREATE DATABASE :"db";'
	c+=(--dbname "$db")
	shopt -s nullglob
	for f in /docker-entrypoint-initdb.d/*; do
		log "running $f"
		case $f in
		*.sh) if [ -x "$f" ]; then "$f"; else . "$f"; fi ;;
		*.sql) "${c[@]}" -f "$f" ;;
		*.sql.gz) gzip -dc "$f" | "${c[@]}" ;;
		esac
	done
	pg_ctl -D "$PGDATA" -m fast -w -s stop
	log "PostgreSQL init process complete; ready for start up."
fi
exec "$@"
