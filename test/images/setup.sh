#!/usr/bin/env bash
# Prepare the real servers that the tests talk to, and print the environment that leads to them:
#
#   set -a; . <(test/images/setup.sh); set +a; go test ./test/...
#
# A Docker engine that answers is used as it is. On a Debian machine without one, root gets one:
# docker.io is installed and dockerd started in the background. Images come, in this order, from
# OUTTAIL_*_IMAGE, from an earlier build, from the local image store, from a registry, and where none
# can be reached from build.sh. Safe to run twice at once and quick when nothing is left to do.
# stdout carries the environment only; all else goes to stderr.
# OUTTAIL_MARIADB=11.8 chooses that MariaDB; by default it is 10.11. OUTTAIL_POSTGRES=15,17 chooses those versions of Postgres, for
# the tests too; by default they are 14 and 18.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=${TMPDIR:-/tmp}/outtail-test-$(id -u)
mkdir -p "$state"

say() { echo "setup: $*" >&2; }
missing() { say "$*"; exit 1; }
answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# Two runs at once must not start two engines or build the same image twice.
exec 9>"$state/setup.lock"
flock 9

install() { # what is absent of the named packages
	local want=() p
	for p; do dpkg-query -W -f '${Status}\n' "$p" 2>/dev/null | grep -q 'ok installed' || want+=("$p"); done
	[ ${#want[@]} -gt 0 ] || return 0
	say "installing ${want[*]}"
	# A foreign source that does not answer must not keep Debian's own packages from us.
	apt-get update >"$state/apt.log" 2>&1 || true
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${want[@]}" >>"$state/apt.log" 2>&1 9>&- ||
		missing "apt-get could not install ${want[*]} (see $state/apt.log)"
}
debian_root() { [ "$(id -u)" = 0 ] && grep -qs '^ID=debian' /etc/os-release; }

engine() {
	answers && return
	[ -z "${DOCKER_HOST:-}" ] || missing "missing: the Docker engine of DOCKER_HOST=$DOCKER_HOST does not answer"
	debian_root || missing "missing: a Docker engine that answers (start one, or set DOCKER_HOST; only root on Debian gets one installed)"
	install docker.io iptables
	answers && return # a service manager may have started it
	say "starting dockerd, log in $state/dockerd.log"
	local try
	for try in 1 2 3; do
		forget_killed
		launch && return
		sleep 2
	done
	missing "missing: dockerd, which does not start: $(grep -v level=info "$state/dockerd.log" | tail -n1)"
}

# An engine that was killed leaves its pid file behind, and dockerd refuses to start while some process has that number, be
# it the dying engine itself or a stranger that got the number since.
forget_killed() {
	local file=/var/run/docker.pid pid i
	[ -f $file ] || return 0
	pid=$(cat $file 2>/dev/null || true)
	for i in $(seq 100); do
		[ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] || break
		! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null || break
		sleep 0.1
	done
	[ "$i" = 100 ] || rm -f $file
}

# launch starts dockerd and waits for its answer; it fails when dockerd ends.
launch() {
	# Not a child of this shell's session: it outlives us, for the next run.
	# Nor is any other descriptor: a lock that our caller holds would stay held as long as the engine runs.
	(
		for fd in /proc/self/fd/*; do
			fd=${fd##*/}
			[ "$fd" -le 2 ] || eval "exec $fd>&-"
		done
		exec setsid nohup dockerd </dev/null >"$state/dockerd.log" 2>&1
	) &
	local pid=$! i
	for i in $(seq 300); do
		answers && return
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.2
	done
	missing "missing: dockerd, which did not answer within a minute (see $state/dockerd.log)"
}

present() { docker image inspect "$1" >/dev/null 2>&1; }
registry=unknown
reachable() { # asked once: a lookup that is refused answers at once, one that hangs costs ten seconds
	if [ $registry = unknown ]; then
		registry=no
		if timeout 10 docker manifest inspect "$1" >/dev/null 2>&1; then registry=yes; fi
	fi
	[ $registry = yes ]
}

chosen=() build=()
choose() { # variable, official image, image of build.sh
	local var=$1 official=$2 spec=$3 own=outtail-test/$3
	if [ -n "${!var:-}" ]; then chosen+=("$var=${!var}"); return; fi
	if "$here/build.sh" current "$spec"; then chosen+=("$var=$own"); return; fi
	if present "$official"; then chosen+=("$var=$official"); return; fi
	if reachable "$official"; then
		say "pulling $official"
		if timeout 600 docker pull -q "$official" >/dev/null 2>"$state/pull.log"; then chosen+=("$var=$official"); return; fi
	fi
	build+=("$spec")
	chosen+=("$var=$own")
}

choose_postgres() { local v; for v; do choose "OUTTAIL_POSTGRES${v}_IMAGE" "postgres:$v" "postgres:$v"; done; }

engine
IFS=, read -ra postgres <<<"${OUTTAIL_POSTGRES:-14,18}"
# Images are built in this order, two at a time: those of the same packages not side by side.
choose_postgres "${postgres[0]}"
choose OUTTAIL_MYSQL_IMAGE mysql:9.7 mysql:9.7
choose OUTTAIL_KAFKA_IMAGE apache/kafka:4.1.1 kafka:4.1.1
choose OUTTAIL_MARIADB_IMAGE "mariadb:${OUTTAIL_MARIADB:-10.11}" "mariadb:${OUTTAIL_MARIADB:-10.11}"
choose_postgres "${postgres[@]:1}"
if [ ${#build[@]} -gt 0 ]; then
	debian_root || missing "missing: the images ${build[*]}, which no registry gave and only root on Debian can build"
	need=(mmdebstrap)
	if [[ " ${build[*]} " == *" kafka:"* || " ${build[*]} " == *" postgres:1"[46]* ]]; then
		need+=(xz-utils)
		command -v mvn >/dev/null || need+=(maven)
	fi
	install "${need[@]}"
	"$here/build.sh" "${build[@]}" >&2 9>&- || missing "missing: the images ${build[*]}, which could not be built"
fi

echo OUTTAIL_SERVERS=1
echo "OUTTAIL_POSTGRES=$(IFS=,; echo "${postgres[*]}")"
printf '%s\n' "${chosen[@]}"
# The harness removes what it starts, and what a killed run left; no reaper image is needed.
echo TESTCONTAINERS_RYUK_DISABLED=true
# Inside a container testcontainers would look for the published ports at the default gateway.
if [ -e /.dockerenv ]; then echo TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1; fi
