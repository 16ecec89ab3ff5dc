package kafka

import (
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
)

// The faults of this package, OT5001 to OT5049; one constructor each.

// unreachable: no broker answers. Waits for ever, degraded.
func unreachable(brokers []string, text string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5001", Class: event.Retry, Op: "reach kafka", Place: strings.Join(brokers, ","), Text: text, Err: err,
		Hint: "check that the brokers run, that sink.kafka.brokers names them, and that the advertised.listeners they answer with can be reached from here; outtail goes on trying",
	}
}

// tlsRefused: the handshake failed, or one side speaks TLS and the other does not.
func tlsRefused(brokers []string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5002", Class: event.Config, Op: "reach kafka", Place: strings.Join(brokers, ","), Text: "TLS was refused", Err: err,
		Hint: "check sink.kafka.tls: enabled must fit the listener, ca must have signed the broker's certificate, server_name must be in it, cert and key must be known to the broker; try: openssl s_client -connect HOST:PORT",
	}
}

// saslRefused: the broker knows neither the mechanism nor the user, or refuses the password.
func saslRefused(brokers []string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5003", Class: event.Config, Op: "authenticate to kafka", Place: strings.Join(brokers, ","), Text: "SASL was refused", Err: err,
		Hint: "check sink.kafka.sasl: mechanism, user and password, and the broker's sasl.enabled.mechanisms",
	}
}

// topicMissing: events wait until somebody creates it.
func topicMissing(topic string) *event.Fault {
	return &event.Fault{
		Code: "OT5004", Class: event.Config, Op: "look up topic", Place: topic, Text: "the topic does not exist; its events wait",
		Hint: fmt.Sprintf("create it: kafka-topics.sh --bootstrap-server HOST:PORT --create --topic %s --partitions 6 --replication-factor 3; or set sink.kafka.create_topics", topic),
	}
}

// topicRefused: an ACL is missing.
func topicRefused(topic string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5005", Class: event.Config, Op: "use topic", Place: topic, Text: "not authorised; its events wait", Err: err,
		Hint: fmt.Sprintf("grant it: kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --producer --topic %s", topic),
	}
}

// topicNotAllowed: allow_topics does not name it.
func topicNotAllowed(topic, id, place string) *event.Fault {
	return record("OT5006", topic, id, place, "the topic is not among sink.kafka.allow_topics", nil,
		"add the topic to sink.kafka.allow_topics, or correct the route or the row's topic column")
}

// topicInvalid: Kafka cannot have a topic of this name.
func topicInvalid(topic, id, place string) *event.Fault {
	return record("OT5007", topic, id, place, "the topic's name is not valid in Kafka", nil,
		"a name has 1 to 249 of a-z A-Z 0-9 . _ - and is neither . nor ..; correct the route's template or the row")
}

// headerInvalid: a header's name is not text.
func headerInvalid(topic, id, place string) *event.Fault {
	return record("OT5008", topic, id, place, "a header's name is not valid UTF-8", nil,
		"correct the row's headers column")
}

// tooLarge: the record alone is above the topic's max.message.bytes.
func tooLarge(topic, id, place string, size, limit int) *event.Fault {
	return record("OT5009", topic, id, place,
		fmt.Sprintf("the record takes %d bytes and the topic's max.message.bytes is %d", size, limit), nil,
		fmt.Sprintf("raise it: kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic %s --add-config max.message.bytes=%d", topic, size))
}

// recordRefused: the broker refused this record when it came alone.
func recordRefused(topic, id, place string, err error) *event.Fault {
	return record("OT5010", topic, id, place, "the broker refused the record", err,
		"compare the record with the topic's configuration (max.message.bytes, message.timestamp.*, compaction without a key)")
}

// partitionMissing: the row names a partition that the topic does not have.
func partitionMissing(topic, id, place string, partition int32, have int) *event.Fault {
	return record("OT5011", topic, id, place,
		fmt.Sprintf("partition %d was asked for and the topic has %d", partition, have), nil,
		"correct the row's partition column, or add partitions to the topic")
}

// otherCluster: what the brokers answer is not the cluster that was opened (I5).
func otherCluster(was, is string) *event.Fault {
	return &event.Fault{
		Code: "OT5012", Class: event.Safety, Op: "compare the kafka cluster", Place: is,
		Text: fmt.Sprintf("the brokers belong to cluster %s, and this pipeline was sending to %s", is, was),
		Hint: "what the old cluster acknowledged may not be in the new one: correct sink.kafka.brokers, or decide with `outtail checkpoint` what is sent again",
	}
}

// producerRefused: the cluster does not let this user produce at all.
func producerRefused(brokers []string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5013", Class: event.Config, Op: "start an idempotent producer", Place: strings.Join(brokers, ","), Text: "not authorised", Err: err,
		Hint: "grant it: kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation IdempotentWrite --cluster",
	}
}

// usage: an option is wrong.
func usage(key, text string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5014", Class: event.Usage, Op: "configure kafka", Place: key, Text: text, Err: err,
		Hint: "correct " + key + " in the configuration",
	}
}

// closed: the sink takes nothing any more.
func closed() *event.Fault {
	return &event.Fault{
		Code: "OT5015", Class: event.Internal, Op: "send", Place: "kafka", Text: "the sink is not open",
		Hint: "this is a defect of outtail; the event is read again after a restart",
	}
}

// createRefused: create_topics is set and the broker does not create it.
func createRefused(topic string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5016", Class: event.Config, Op: "create topic", Place: topic, Text: "the broker refused to create it; its events wait", Err: err,
		Hint: "check sink.kafka.create_topics (partitions, replication against the number of brokers) and the right to create topics, or create it by hand",
	}
}

// interrupted: the client gave records back for a reason that is nobody's configuration; they are sent again.
func interrupted(brokers []string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5017", Class: event.Retry, Op: "produce", Place: strings.Join(brokers, ","), Text: "the producer was interrupted and starts again", Err: err,
		Hint: "outtail sends again what was not acknowledged; if this stays, the brokers' logs tell why",
	}
}

func record(code, topic, id, place, text string, err error, hint string) *event.Fault {
	at := "topic " + topic
	if id != "" {
		at = "event " + id + ", " + at
	}
	if place != "" {
		at += ", read at " + place
	}
	return &event.Fault{Code: code, Class: event.Record, Op: "send", Place: at, Text: text, Err: err, Hint: hint}
}
