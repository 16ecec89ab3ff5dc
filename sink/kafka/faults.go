package kafka

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/outtail/outtail/event"
)

// The faults of this package, OT5001 to OT5049; one constructor each.

// server is what Kafka's own tools take as --bootstrap-server, so that a hint can be copied. Where the cluster asks for TLS or a login, they
// need a file that says how, and only the reader knows that one.
func (c *config) server() string {
	s := strings.Join(c.Brokers, ",")
	if c.TLS.Enabled || c.SASL.Mechanism != "" {
		s += " --command-config CLIENT.properties"
	}
	return s
}

// principal is whom the brokers take us for, as kafka-acls.sh names it.
func (c *config) principal() string {
	switch {
	case c.SASL.Mechanism != "":
		return event.ShellWord("User:" + c.SASL.User)
	case c.TLS.Enabled && c.TLS.Cert != "":
		return "User:NAME" // what brokers make of a certificate's subject is their configuration
	}
	return "User:ANONYMOUS"
}

// unreachable: no broker answers. Waits for ever, degraded.
func unreachable(brokers []string, text string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5001", Class: event.Retry, Op: "reach kafka", Place: strings.Join(brokers, ","), Text: text, Err: err,
		Hint: "check that the brokers run (one that is only starting hangs up as well, which may read as \"is TLS missing?\": that passes by itself), that sink.kafka.brokers names them, and that the advertised.listeners they answer with can be reached from here; outtail goes on trying",
	}
}

// tlsRefused: the handshake failed, or one side speaks TLS and the other does not.
func (c *config) tlsRefused(err error) *event.Fault {
	return &event.Fault{
		Code: "OT5002", Class: event.Config, Op: "reach kafka", Place: strings.Join(c.Brokers, ","), Text: "TLS was refused", Err: err,
		Hint: fmt.Sprintf("check sink.kafka.tls: enabled must fit the listener, ca must have signed the broker's certificate, server_name must be in it, cert and key must be known to the broker; try: openssl s_client -connect %s", c.Brokers[0]),
	}
}

// saslRefused: the broker knows neither the mechanism nor the user, or refuses the password.
func saslRefused(brokers []string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5003", Class: event.Config, Op: "authenticate to kafka", Place: strings.Join(brokers, ","), Text: "SASL was refused", Err: err,
		Hint: "check sink.kafka.sasl: mechanism, user and password, and the broker's sasl.enabled.mechanisms",
	}
}

// topicMissing: events wait until somebody creates it. brokers is how many the cluster has, so that what the hint says works there.
func (c *config) topicMissing(topic string, brokers int) *event.Fault {
	return &event.Fault{
		Code: "OT5004", Class: event.Config, Op: "look up topic", Place: topic, Text: "the topic does not exist; what goes there waits",
		Hint: fmt.Sprintf("create it: kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 6 --replication-factor %d; or set sink.kafka.create_topics", c.server(), topic, min(max(brokers, 1), 3)),
	}
}

// topicRefused: an ACL is missing.
func (c *config) topicRefused(topic string, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5005", Class: event.Config, Op: "use topic", Place: topic, Text: "not authorised; what goes there waits", Err: err,
		Hint: fmt.Sprintf("grant it: kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --producer --topic %s", c.server(), c.principal(), topic),
	}
}

// appendRefused: the broker takes nothing for this topic, for want of a right or because the two do not fit.
func (c *config) appendRefused(topic string, err error) *event.Fault {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return c.topicRefused(topic, err)
	}
	return &event.Fault{
		Code: "OT5018", Class: event.Config, Op: "use topic", Place: topic, Text: "the topic takes nothing that is sent so; what goes there waits", Err: err,
		Hint: "compare sink.kafka.compression with what the brokers take, and the topic's configuration (compression.type, message.format.version, policies of the brokers) with what the cause says",
	}
}

// topicNotAllowed: allow_topics does not name it.
func topicNotAllowed(m *event.Message) *event.Fault {
	return &event.Fault{
		Code: "OT5006", Class: event.Record, Op: "send", Place: where(m), Text: "the topic is not among sink.kafka.allow_topics",
		Hint: "add the topic to sink.kafka.allow_topics, or correct the route or the row's topic column",
	}
}

// topicInvalid: Kafka cannot have a topic of this name.
func topicInvalid(m *event.Message) *event.Fault {
	return &event.Fault{
		Code: "OT5007", Class: event.Record, Op: "send", Place: where(m), Text: "the topic's name is not valid in Kafka",
		Hint: "a topic has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is neither . nor ..; correct the route's template or the row",
	}
}

// headerInvalid: a header's name is not text.
func headerInvalid(m *event.Message) *event.Fault {
	return &event.Fault{
		Code: "OT5008", Class: event.Record, Op: "send", Place: where(m), Text: "a header's name is not valid UTF-8",
		Hint: "correct the row's headers column",
	}
}

// tooLarge: the record alone is above the topic's max.message.bytes.
func (c *config) tooLarge(m *event.Message, size, limit int) *event.Fault {
	return &event.Fault{
		Code: "OT5009", Class: event.Record, Op: "send", Place: where(m),
		Text: fmt.Sprintf("the record takes %d bytes and the topic's max.message.bytes is %d", size, limit),
		Hint: fmt.Sprintf("raise it: kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config max.message.bytes=%d (and replica.fetch.max.bytes of the brokers where needed)", c.server(), m.Topic, size),
	}
}

// recordRefused: the broker refused this record when it came alone.
func recordRefused(m *event.Message, err error) *event.Fault {
	return &event.Fault{
		Code: "OT5010", Class: event.Record, Op: "send", Place: where(m), Text: "the broker refused the record", Err: err,
		Hint: "compare the record with the topic's configuration (max.message.bytes, message.timestamp.*, compaction without a key)",
	}
}

// partitionMissing: the row names a partition that the topic does not have.
func partitionMissing(m *event.Message, have int) *event.Fault {
	return &event.Fault{
		Code: "OT5011", Class: event.Record, Op: "send", Place: where(m),
		Text: fmt.Sprintf("partition %d was asked for and the topic has %d", m.Partition, have),
		Hint: "correct the row's partition column, or add partitions to the topic",
	}
}

// CodeClusterChanged is the stop of a sink whose brokers become another cluster's while it runs; a start tells it as
// pipeline.CodeOtherCluster.
const CodeClusterChanged = "OT5012"

// otherCluster: what the brokers answer is not the cluster that was opened (I5).
func otherCluster(was, is string) *event.Fault {
	return &event.Fault{
		Code: CodeClusterChanged, Class: event.Safety, Op: "compare the kafka cluster", Place: is,
		Text: fmt.Sprintf("the brokers belong to cluster %s, and this pipeline was sending to %s", is, was),
		Hint: "what the old cluster acknowledged may not be in the new one: point sink.kafka.brokers at the old cluster and start again; or choose one:" +
			"\n  outtail checkpoint accept -c FILE --pipeline P --code OT6003 --reason R   (goes on in the new cluster behind what the old one acknowledged)" +
			"\n  outtail checkpoint rewind -c FILE --pipeline P --to ENTRY --reason R   (sends again from an entry of outtail checkpoint history on; accept the cluster too)",
	}
}

// producerRefused: the cluster does not let this user produce at all.
func (c *config) producerRefused(err error) *event.Fault {
	return &event.Fault{
		Code: "OT5013", Class: event.Config, Op: "start an idempotent producer", Place: strings.Join(c.Brokers, ","), Text: "not authorised", Err: err,
		Hint: fmt.Sprintf("grant it: kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation IdempotentWrite --cluster", c.server(), c.principal()),
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
		Code: "OT5016", Class: event.Config, Op: "create topic", Place: topic, Text: "the broker refused to create it; what goes there waits", Err: err,
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

// where names a message to an operator: its id, its topic and where it was read, nothing of its content (I10).
func where(m *event.Message) string {
	at := fmt.Sprintf("topic %q", m.Topic)
	if m.ID != "" {
		at = "event " + m.ID + ", " + at
	}
	if m.Place != "" {
		at += ", read at " + m.Place
	}
	return at
}
