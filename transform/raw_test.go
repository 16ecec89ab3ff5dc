package transform

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

var commit = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type roles map[event.Role]string

// null marks SQL NULL in a test's row.
const null = "\x00null"

func eventOf(values roles) *event.Event {
	ev := &event.Event{
		Tx: &event.Tx{Source: "postgres/outtail_orders/0/16B3748", Commit: commit}, Index: 12, Table: "public.outbox", Size: 500,
	}
	for r, v := range values {
		if v == null {
			ev.Row[r] = event.Value{Set: true, Null: true}
			continue
		}
		ev.Row[r] = event.Value{Set: true, Bytes: []byte(v)}
	}
	return ev
}

func lines(headers []event.Header) []string {
	var out []string
	for _, h := range headers {
		out = append(out, h.Name+"="+string(h.Value))
	}
	return out
}

func transformed(t *testing.T, values roles) *event.Message {
	t.Helper()
	var m event.Message
	require.NoError(t, NewRaw().Transform(eventOf(values), &m))
	return &m
}

func TestHeadersComeInTheOrderOfTheContract(t *testing.T) {
	m := transformed(t, roles{
		event.ID: "e-1", event.AggregateType: "order", event.AggregateID: "4711", event.AggregateVersion: "3",
		event.EventType: "order.created", event.EventVersion: "2", event.Topic: "orders", event.Key: "k", event.Tenant: "acme",
		event.Payload: `{"a": 1}`, event.Headers: `{"zone":"eu","attempt":2,"flags":{"a":[true]},"none":null,"urgent":false}`,
		event.OccurredAt: "2026-01-02 03:04:04.5+00", event.TraceParent: "00-aa-bb-01",
	})
	require.Equal(t, `{"a": 1}`, string(m.Value))
	require.Equal(t, []string{
		"id=e-1", "event_type=order.created", "aggregate_type=order", "aggregate_id=4711", "aggregate_version=3", "event_version=2",
		"occurred_at=2026-01-02T03:04:04.500000Z", "source=postgres/outtail_orders/0/16B3748#12",
		"zone=eu", "attempt=2", `flags={"a":[true]}`, "urgent=false", "traceparent=00-aa-bb-01",
	}, lines(m.Headers))
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 4, 500_000_000, time.UTC), m.Timestamp)
	require.Equal(t, commit, m.Commit)
	require.Equal(t, "postgres/outtail_orders/0/16B3748#12", m.Place)
	require.Greater(t, m.Size, 500)
}

func TestWhatIsUnmappedOrNullIsLeftOut(t *testing.T) {
	m := transformed(t, roles{event.ID: "e-1", event.AggregateType: null, event.Headers: null, event.OccurredAt: null, event.TraceParent: null})
	require.Equal(t, []string{"id=e-1", "source=postgres/outtail_orders/0/16B3748#12"}, lines(m.Headers))
	require.Equal(t, commit, m.Timestamp)
}

func TestEmptyTextIsAHeader(t *testing.T) {
	m := transformed(t, roles{event.EventType: "", event.Headers: `{"note":""}`})
	require.Equal(t, []string{"event_type=", "source=postgres/outtail_orders/0/16B3748#12", "note="}, lines(m.Headers))
}

func TestNullEmptyAndJSONNullPayloadsStayApart(t *testing.T) {
	require.Nil(t, transformed(t, roles{}).Value, "unmapped")
	require.Nil(t, transformed(t, roles{event.Payload: null}).Value, "SQL NULL is a tombstone")
	require.Equal(t, []byte{}, transformed(t, roles{event.Payload: ""}).Value)
	require.Equal(t, []byte("null"), transformed(t, roles{event.Payload: "null"}).Value)

	ev := eventOf(nil)
	ev.Row[event.Payload] = event.Value{Set: true} // empty, and the source had no bytes to point at
	var m event.Message
	require.NoError(t, NewRaw().Transform(ev, &m))
	require.NotNil(t, m.Value)
}

func TestThePayloadTravelsByteForByte(t *testing.T) {
	payload := "\xff\x00{\"a\" : 1e5,  \"b\":\"\\u00e9\"}\n"
	require.Equal(t, payload, string(transformed(t, roles{event.Payload: payload}).Value))
}

func TestARowsOwnHeaderOfAReservedNameIsSkippedAndCounted(t *testing.T) {
	raw, skipped := NewRaw(), 0
	raw.Skipped = func(headers int) { skipped += headers }
	var m event.Message
	require.NoError(t, raw.Transform(eventOf(roles{
		event.ID:      "e-1",
		event.Headers: `{"id":"x","source":"x","occurred_at":null,"event_version":1,"\u0069d":"x","Id":"kept","traceparent":"own"}`,
	}), &m))
	require.Equal(t, []string{"id=e-1", "source=postgres/outtail_orders/0/16B3748#12", "Id=kept", "traceparent=own"}, lines(m.Headers))
	require.Equal(t, 5, skipped)
}

func TestAMappedTraceparentWinsOverTheRowsOwn(t *testing.T) {
	raw, skipped := NewRaw(), 0
	raw.Skipped = func(headers int) { skipped += headers }
	var m event.Message
	require.NoError(t, raw.Transform(eventOf(roles{
		event.Headers: `{"traceparent":"own","a":"b"}`, event.TraceParent: "mapped",
	}), &m))
	require.Equal(t, []string{"source=postgres/outtail_orders/0/16B3748#12", "a=b", "traceparent=mapped"}, lines(m.Headers))
	require.Equal(t, 1, skipped)
}

func TestTimestampsThatBrokersRefuseGiveWayToTheCommitTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-01-02 04:04:05+00":        commit.Add(time.Hour),
		"2026-01-02 04:04:05.000001+00": commit,
		"1970-01-01 00:00:00+00":        time.Unix(0, 0).UTC(),
		"1969-12-31 23:59:59.999999+00": commit,
		"infinity":                      commit,
		"0000-00-00 00:00:00":           commit,
	} {
		raw, replaced := NewRaw(), 0
		raw.Replaced = func() { replaced++ }
		var m event.Message
		require.NoError(t, raw.Transform(eventOf(roles{event.OccurredAt: text}), &m))
		require.True(t, want.Equal(m.Timestamp), "%s gives %v", text, m.Timestamp)
		require.Equal(t, want.Equal(commit), replaced == 1, text)
	}
	m := transformed(t, roles{event.OccurredAt: "infinity"})
	require.Equal(t, "occurred_at=infinity", lines(m.Headers)[0], "what has no RFC 3339 form travels as it is")
}

func TestBrokenHeadersAreARecordFaultThatTellsNoContent(t *testing.T) {
	for _, text := range []string{`["SECRET"]`, `{"SECRET":`, `"SECRET"`, `{"a":"SECRET"}}`} {
		var m event.Message
		err := NewRaw().Transform(eventOf(roles{event.ID: "e-1", event.Headers: text}), &m)
		f := event.AsFault(err)
		require.NotNil(t, f)
		require.Equal(t, "OT6201", f.Code)
		require.Equal(t, event.Record, f.Class)
		require.Contains(t, f.Error(), "e-1")
		require.NotContains(t, f.Error()+f.Hint, "SECRET")
	}
}

func TestMessagesDoNotShareWhatTheTransformerReuses(t *testing.T) {
	raw := NewRaw()
	messages := make([]event.Message, 3000)
	for i := range messages {
		ev := eventOf(roles{
			event.ID: fmt.Sprint(i), event.OccurredAt: "2026-01-02 03:04:05+00",
			event.Headers: fmt.Sprintf(`{"n":"\u0023%d"%s}`, i, strings.Repeat(`,"x":1`, i%300)),
		})
		ev.Index = uint64(i)
		require.NoError(t, raw.Transform(ev, &messages[i]))
	}
	for i, m := range messages {
		got := lines(m.Headers)
		require.Len(t, got, 4+i%300)
		require.Equal(t, []string{
			fmt.Sprintf("id=%d", i), "occurred_at=2026-01-02T03:04:05.000000Z",
			fmt.Sprintf("source=postgres/outtail_orders/0/16B3748#%d", i), fmt.Sprintf("n=#%d", i),
		}, got[:4])
	}
}

func TestHeaderNamesStayBounded(t *testing.T) {
	raw := NewRaw()
	for i := range 3 * maxNames {
		name := fmt.Sprintf("h%d", i)
		require.Equal(t, name, raw.name([]byte(name)))
		require.LessOrEqual(t, len(raw.names), maxNames)
	}
}

func TestTransformingHardlyAllocates(t *testing.T) {
	raw, ev := NewRaw(), typical()
	var m event.Message
	require.Less(t, testing.AllocsPerRun(5000, func() { _ = raw.Transform(ev, &m) }), 1.0)
}

func typical() *event.Event {
	return eventOf(roles{
		event.ID: "5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01", event.AggregateType: "order", event.AggregateID: "4711",
		event.EventType: "order.created", event.Payload: strings.Repeat("x", 450), event.OccurredAt: "2026-01-02 03:04:04.123456+00",
		event.Headers: `{"tenant": "acme", "attempt": 1}`,
	})
}

func BenchmarkRaw(b *testing.B) {
	raw, ev := NewRaw(), typical()
	var m event.Message
	b.ReportAllocs()
	for b.Loop() {
		if err := raw.Transform(ev, &m); err != nil {
			b.Fatal(err)
		}
	}
}
