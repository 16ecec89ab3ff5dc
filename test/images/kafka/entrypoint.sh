#!/bin/bash
# server.properties from KAFKA_* by Kafka's own KafkaDockerWrapper, which formats the storage too, then
# the server as PID 1. Without KAFKA_*: one combined node on port 9092.
set -euo pipefail
conf=/opt/kafka/config cds=/opt/kafka/cds mode=${ARCHIVE:-use}
export CLUSTER_ID=${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}
heap=${KAFKA_HEAP_OPTS:--Xms256m -Xmx512m}
perf=${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseG1GC -XX:MaxGCPauseMillis=20}
cp=$(printf ':%s' /opt/kafka/libs/*.jar)
cp=${cp#:}

archive() { # the JVM flags to write or use the class archive of that name
	if [ "$mode" = dump ]; then echo "-Xlog:cds=off -Xlog:cds+dynamic=off -XX:ArchiveClassesAtExit=$cds/$1.jsa"
	elif [ -f "$cds/$1.jsa" ]; then echo "-XX:SharedArchiveFile=$cds/$1.jsa -Xshare:auto"; fi
}

mkdir -p "$conf"
# shellcheck disable=SC2046
out=$(java $(archive storage) -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=warning:stderr \
	-Dlog4j2.configurationFile=/etc/kafka/docker/tools-log4j2.yaml -cp "$cp" kafka.docker.KafkaDockerWrapper setup \
	--default-configs-dir /etc/kafka/docker --mounted-configs-dir /mnt/shared/config --final-configs-dir "$conf" 2>&1) ||
	[[ $out == *"already formatted"* ]] || { echo "$out" >&2; exit 1; } # a restarted container has its storage
[ -z "$out" ] || echo "$out"

main=(-Xlog:disable -Xlog:all=warning:stderr "-Dlog4j2.configurationFile=$conf/log4j2.yaml" -Dkafka.logs.dir=/opt/kafka/logs -cp "$cp" kafka.Kafka "$conf/server.properties")
if [ "$mode" = dump ]; then
	# shellcheck disable=SC2046,SC2086
	java $(archive kafka) $heap $perf "${main[@]}" >/tmp/kafka.out 2>&1 &
	p=$!
	for _ in $(seq 600); do
		! grep -q 'Kafka Server started' /tmp/kafka.out || break
		kill -0 $p || break
		sleep 0.2
	done
	kill $p || true
	wait $p || true
	cat /tmp/kafka.out
	exit
fi
# shellcheck disable=SC2046,SC2086
exec java $(archive kafka) $heap $perf ${KAFKA_OPTS:-} "${main[@]}"
