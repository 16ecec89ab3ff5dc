#!/bin/sh
# One launcher for the command line tools, under the names that the Kafka distribution gives them.
case $(basename "$0") in
kafka-topics.sh) c=org.apache.kafka.tools.TopicCommand ;;
kafka-configs.sh) c=kafka.admin.ConfigCommand ;;
kafka-console-producer.sh) c=org.apache.kafka.tools.ConsoleProducer ;;
kafka-console-consumer.sh) c=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
kafka-consumer-groups.sh) c=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
kafka-get-offsets.sh) c=org.apache.kafka.tools.GetOffsetShell ;;
kafka-broker-api-versions.sh) c=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
*) echo "$0: unknown tool" >&2; exit 2 ;;
esac
exec java ${KAFKA_HEAP_OPTS:--Xmx256m} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
	-Dlog4j2.configurationFile=/opt/kafka/config/tools-log4j2.yaml ${KAFKA_OPTS:-} -cp '/opt/kafka/libs/*' "$c" "$@"
