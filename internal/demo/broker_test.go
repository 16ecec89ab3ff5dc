package demo

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

const someID = "0f3b0a6e-5a0c-4c3b-9b1e-0123456789ab"

func record(t *testing.T, customer string, number uint64, placed time.Time, id string) *kgo.Record {
	t.Helper()
	_, payload, err := newOrder(customer, number, placed)
	require.NoError(t, err)
	return &kgo.Record{Topic: topic, Key: []byte(customer), Value: payload, Headers: []kgo.RecordHeader{
		{Key: "id", Value: []byte(id)}, {Key: "event_type", Value: []byte("order.created")},
	}}
}

func TestARecordIsReadAsTheShopWroteIt(t *testing.T) {
	placed := time.UnixMicro(1_700_000_000_123_456)
	r := record(t, "customer-007", 42, placed, someID)
	d, err := readDelivery(r, placed.Add(time.Second))
	require.NoError(t, err)
	id, err := parseEventID(someID)
	require.NoError(t, err)
	require.Equal(t, Delivery{
		Aggregate: "customer-007", Number: 42, ID: id, Digest: digest("customer-007", r.Value),
		Committed: placed, Read: placed.Add(time.Second),
	}, d)

	for name, broken := range map[string]func(*kgo.Record){
		"no id":        func(r *kgo.Record) { r.Headers = nil },
		"a strange id": func(r *kgo.Record) { r.Headers[0].Value = []byte("17") },
		"no JSON":      func(r *kgo.Record) { r.Value = []byte("<order/>") },
		"null":         func(r *kgo.Record) { r.Value = nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, "customer-007", 42, placed, someID)
			broken(r)
			_, err := readDelivery(r, placed)
			require.Error(t, err)
		})
	}
}

func TestDigestsDifferWhereKeyOrValueDo(t *testing.T) {
	require.Equal(t, digest("k", []byte("v")), digest("k", []byte("v")))
	require.NotEqual(t, digest("k", []byte("v")), digest("k", []byte("w")))
	require.NotEqual(t, digest("ab", []byte("c")), digest("a", []byte("bc")))
}

func TestOrdersAddUp(t *testing.T) {
	for n := range uint64(200) {
		total, payload, err := newOrder("customer-001", n, time.Now())
		require.NoError(t, err)
		var o order
		require.NoError(t, json.Unmarshal(payload, &o))
		require.Equal(t, total, o.Total)
		require.NotEmpty(t, o.Items)
		require.Equal(t, n, o.Number)
	}
}

// The whole consuming side over a broker: what was produced is what the checker sees, in order per key.
func TestTheConsumerTellsTheCheckerAllThatTheBrokerHolds(t *testing.T) {
	defer goleak.VerifyNone(t)
	b, err := startBroker()
	require.NoError(t, err)
	defer b.close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	require.NoError(t, err)
	defer producer.Close()

	s := &stage{broker: b, checker: NewChecker(), passed: map[int32]int64{}}
	c, err := newConsumer(b, s.checker)
	require.NoError(t, err)
	defer c.close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx, s.note) }()
	require.True(t, s.readToTheEnd(), "an empty broker is read")

	names := []string{"customer-000", "customer-001", "customer-002", "customer-003", "customer-004", "customer-005", "customer-006"}
	var rows []Row
	for number := uint64(1); number <= 20; number++ {
		for i, name := range names {
			r := record(t, name, number, time.Now(), someID)
			r.Headers[0].Value[0] = byte('a' + i%6)
			require.NoError(t, producer.ProduceSync(t.Context(), r).FirstErr())
			d, err := readDelivery(r, time.Now())
			require.NoError(t, err)
			if number < 20 || name != "customer-003" {
				rows = append(rows, Row{d.Aggregate, d.Number, d.ID, d.Digest})
			}
		}
	}
	require.Eventually(t, s.readToTheEnd, slow, 5*time.Millisecond)
	v := s.checker.Judge(rows)
	require.EqualValues(t, 140, v.Delivered)
	require.Zero(t, v.Lost+v.OutOfOrder+v.Changed+v.Duplicates)
	require.EqualValues(t, 1, v.Invented, "one arrived of which there is no row")
	cancel()
	require.NoError(t, <-ended)
}
