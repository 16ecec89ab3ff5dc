#!/usr/bin/env bash
# docker-compose.yml is well-formed, comes up, and carries an event to each topic. Where no registry can be reached it runs
# on the images that test/images builds, and on the Dockerfile's last stage around a binary built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { echo "compose-check: $*"; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

env=$(OUTTAIL_POSTGRES=17 test/images/setup.sh)
image() { sed -n "s/^OUTTAIL_$1_IMAGE=//p" <<<"$env"; }
export MYSQL_IMAGE POSTGRES_IMAGE KAFKA_IMAGE
MYSQL_IMAGE=$(image MYSQL) POSTGRES_IMAGE=$(image POSTGRES17) KAFKA_IMAGE=$(image KAFKA)

# Debian 12 has no compose plugin: that of the next release is unpacked beside the CLI.
if ! docker compose version >/dev/null 2>&1; then
	grep -qs '^ID=debian' /etc/os-release || { say "missing: the docker compose plugin"; exit 1; }
	say "unpacking the compose plugin"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep -v security | sort -u | sed -n 1p)
	mkdir -p "$tmp/apt/lists/partial" "$tmp/apt/cache/archives/partial" "$tmp/plugin" ~/.docker/cli-plugins
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$tmp/apt/sources.list"
	apt=(apt-get -qq -o Dir::Etc::sourcelist="$tmp/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$tmp/apt/lists"
		-o Dir::Cache="$tmp/apt/cache" -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none -o APT::Sandbox::User=root)
	"${apt[@]}" update >/dev/null
	(cd "$tmp/plugin" && "${apt[@]}" download docker-compose && dpkg-deb -x docker-compose_*.deb .)
	install -m 755 "$tmp/plugin/usr/libexec/docker/cli-plugins/docker-compose" ~/.docker/cli-plugins/
fi

docker compose config -q
say "well-formed"

export OUTTAIL_IMAGE=outtail:compose-check
if timeout 10 docker manifest inspect golang:1.26 >/dev/null 2>&1; then
	DOCKER_BUILDKIT=1 docker build -q -t $OUTTAIL_IMAGE . >/dev/null
else
	mkdir -p "$tmp/image/etc/ssl/certs" "$tmp/image/out/data"
	cp /etc/ssl/certs/ca-certificates.crt "$tmp/image/etc/ssl/certs/"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$tmp/image/out/outtail" ./cmd/outtail
	# The stage "build" is a base image that holds what the real one would have made.
	tar -C "$tmp/image" -c . | docker import - outtail-test/compose-build >/dev/null
	{ echo 'FROM outtail-test/compose-build AS build'; sed -n '/^FROM scratch/,$p' Dockerfile; } |
		DOCKER_BUILDKIT=0 docker build -q -t $OUTTAIL_IMAGE - >/dev/null 2>"$tmp/build.log" || { cat "$tmp/build.log"; exit 1; }
fi

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' 2>/dev/null || echo $((20000 + RANDOM % 10000)); }
export COMPOSE_PROJECT_NAME=outtail-check-$$ MYSQL_PORT POSTGRES_PORT KAFKA_PORT OUTTAIL_PORT
MYSQL_PORT=$(port) POSTGRES_PORT=$(port) KAFKA_PORT=$(port) OUTTAIL_PORT=$(port)
down() {
	docker compose down -v -t 1 >/dev/null 2>&1 || true
	docker image rm $OUTTAIL_IMAGE outtail-test/compose-build >/dev/null 2>&1 || true
	rm -rf "$tmp"
}
trap down EXIT
if ! docker compose up -d --no-build --pull never --wait --wait-timeout 240 >"$tmp/up.log" 2>&1; then
	tail -n 20 "$tmp/up.log"
	docker compose logs --tail 40
	exit 1
fi
say "up"

for topic in shop.orders shop.payments; do
	for i in $(seq 60); do
		event=$(docker compose exec -T kafka /opt/kafka/bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic $topic \
			--from-beginning --max-messages 1 --timeout-ms 5000 --property print.key=true --property print.headers=true 2>/dev/null | head -n1 || true)
		[ -z "$event" ] || break
		sleep 1
	done
	if [ -z "$event" ]; then
		say "no event in $topic"
		docker compose logs --tail 60 outtail order-service payment-service kafka
		exit 1
	fi
	say "$topic: $event"
done
for i in $(seq 60); do
	ready=$(curl -fsS "http://127.0.0.1:$OUTTAIL_PORT/readyz" 2>&1) && break || sleep 1
done
curl -fsS "http://127.0.0.1:$OUTTAIL_PORT/readyz" >/dev/null || { say "/readyz: $ready"; docker compose logs --tail 60 outtail; exit 1; }
say "/readyz is 200"
[ "$(docker compose ps -q outtail | xargs docker inspect -f '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}}')" = "65532:65532 true" ]
say "ok"
