package kafka

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/errortable"
)

var update = flag.Bool("update", false, "write the table of error codes anew; read its diff")

func (v verdict) String() string {
	return [...]string{"interrupted", "record", "topic refused", "topic recreated"}[v]
}

// Every error code that the client library knows, and what is made of it where it answers a produce request, a lookup, or a connection.
// A code that a new version of the library brings fails here until somebody has decided about it.
func TestEveryErrorCodeIsClassified(t *testing.T) {
	c := &config{Options: Options{Brokers: []string{"b:1"}}}
	var b strings.Builder
	known := 0
	for code := int16(-1); code < 2000; code++ {
		err := kerr.TypedErrorForCode(code)
		if err == nil || code != -1 && err == kerr.UnknownServerError {
			continue
		}
		known++
		wrapped := fmt.Errorf("produce: %w", err)
		v, told := judge(wrapped), "-"
		if v == interruptedClient {
			f := c.interruption(wrapped)
			told = f.Code + " " + f.Class.String()
		}
		look := c.lookup("t", 1, err)
		fmt.Fprintf(&b, "%d %s: produce %s (%s), lookup %s %s\n", code, err.Message, v, told, look.Code, look.Class)
		// What passes by itself is nobody's fault, but for three that say what passed: the topic went, or the bytes broke.
		if err.Retriable && !slices.Contains([]*kerr.Error{kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID}, err) {
			require.Equal(t, interruptedClient, v, err.Message)
			require.Equal(t, event.Retry, c.interruption(err).Class, err.Message)
			require.Equal(t, event.Retry, look.Class, err.Message)
		}
	}
	require.Greater(t, known, 100)
	errortable.Check(t, *update, b.String())
}

// What waits for one topic, in many connectors, does not come back in step.
func TestLookupsAreRepeatedSlowerAndSlowerWithJitter(t *testing.T) {
	s := &Sink{pace: pace{lookMin: time.Second, lookMax: 30 * time.Second}}
	for try, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := s.backoff(try)
			require.LessOrEqual(t, d, most*time.Second)
			require.GreaterOrEqual(t, d, most*time.Second/2)
			seen[d] = true
		}
		require.Greater(t, len(seen), 10)
	}
	require.LessOrEqual(t, s.backoff(1_000), 30*time.Second)
}

func TestWhatErrorsOfProducingMean(t *testing.T) {
	for want, errs := range map[verdict][]error{
		refusedRecord:     {kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage},
		refusedTopic:      {kerr.TopicAuthorizationFailed, kerr.PolicyViolation, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType},
		recreatedTopic:    {kerr.UnknownTopicID, kerr.UnknownTopicOrPartition},
		interruptedClient: {kerr.NotEnoughReplicas, kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownServerError, kerr.ErrorForCode(31999), errors.New("what nobody knows")},
	} {
		for _, err := range errs {
			require.Equal(t, want, judge(fmt.Errorf("wrapped: %w", err)), "%v", err)
		}
	}
	c := &config{Options: Options{Brokers: []string{"b:1"}}}
	for class, errs := range map[event.Class][]error{
		event.Config: {kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, errHandshakeCut},
		event.Retry:  {kerr.KafkaStorageError, kerr.ErrorForCode(31999), errors.New("what nobody knows"), nil},
	} {
		for _, err := range errs {
			require.Equal(t, class, c.connection("", err).Class, "%v", err)
		}
	}
}

// What a hint tells to run works as it stands: at the brokers of the configuration, with what this cluster has.
func TestHintsNameTheBrokersAndWhatTheyCanDo(t *testing.T) {
	plain := &config{Options: Options{Brokers: []string{"b1:9092", "b2:9092"}}}
	for brokers, replicas := range map[int]string{0: "1", 1: "1", 2: "2", 3: "3", 9: "3"} {
		require.Contains(t, plain.lookup("orders", brokers, kerr.UnknownTopicOrPartition).Hint,
			"kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --create --topic orders --partitions 6 --replication-factor "+replicas+";")
	}
	require.Contains(t, plain.topicRefused("orders", nil).Hint, "kafka-acls.sh --bootstrap-server b1:9092,b2:9092 --add --allow-principal User:ANONYMOUS --producer --topic orders")
	m := &event.Message{Topic: "orders"}
	require.Contains(t, plain.tooLarge(m, 2000, 1000).Hint, "kafka-configs.sh --bootstrap-server b1:9092,b2:9092 --alter --topic orders --add-config max.message.bytes=2000")
	require.Contains(t, plain.tlsRefused(nil).Hint, "-connect b1:9092")

	login := &config{Options: Options{Brokers: []string{"b1:9092"}, SASL: SASL{Mechanism: "plain", User: "out tail", Password: "secret"}}}
	for _, f := range []*event.Fault{login.topicMissing("orders", 1), login.topicRefused("orders", nil), login.producerRefused(nil), login.tooLarge(m, 2, 1)} {
		require.Contains(t, f.Hint, "--bootstrap-server b1:9092 --command-config CLIENT.properties ", "the tools have to log in too")
		require.NotContains(t, f.Error()+f.Hint, "secret")
	}
	require.Contains(t, login.producerRefused(nil).Hint, "--allow-principal 'User:out tail' ")
	certificate := &config{Options: Options{Brokers: []string{"b1:9092"}, TLS: TLS{Enabled: true, Cert: "c.pem", Key: "k.pem"}}}
	require.Contains(t, certificate.producerRefused(nil).Hint, "--command-config CLIENT.properties --add --allow-principal User:NAME ")
}
