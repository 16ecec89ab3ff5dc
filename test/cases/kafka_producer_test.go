package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// obliging is a broker that makes topics for whoever asks it to, where tests may also slow producers down.
func obliging(t *testing.T) *harness.Kafka {
	return servers.KafkaWith(t, harness.KafkaOptions{Env: map[string]string{"KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true"}})
}

// bulk commits n events with payloads of more than size bytes in one transaction, and gives their ids.
func bulk(t *testing.T, db shop.Database, n, size int) (ids []string) {
	t.Helper()
	for i := 1; i <= n; i++ {
		ids = append(ids, numbered(i))
	}
	switch db := db.(type) {
	case *shop.MySQL:
		db.Exec(t, deep(db)+"; "+bigInsert(db, 1, n, size))
	default:
		db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
			SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid, 'order', 'order-1', 'order.changed', to_jsonb(repeat('x', %d)) FROM generate_series(1, %d) i`, size, n))
	}
	return ids
}

// impatient has a Postgres give replication sessions up that say nothing for two seconds.
func impatient(t *testing.T, db shop.Database) {
	if pg, ok := db.(*shop.Postgres); ok {
		pg.Exec(t, `ALTER DATABASE `+pg.DB+` SET wal_sender_timeout = '2s'`)
	}
}

// letters is what waits in the dead-letter store.
func letters(t *testing.T, s *scene.Scene) (all []struct{ ID, Aggregate, Code, Text, Hint string }) {
	t.Helper()
	r := s.Outtail.Run(t, "dlq", "list", "-c", s.Outtail.Config, "--json")
	require.Equal(t, 0, r.Code, r.Stderr)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all), r.Stdout)
	return all
}

// What is too large for Kafka's defaults is told by id, size and limit and left to its policy; others flow, in order.
func TestB082ARecordThatIsTooLargeIsItsPolicysAlone(t *testing.T) {
	t.Parallel()
	db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
	s := scene.New(t, &servers, db)
	s.Configure("Poison", "park")
	p := s.Start()
	small := func() { s.Expect(commit(t, db, row{"small", "order.changed", "{}"})...) }
	large := func(size int, headers string) (id string) {
		id = scene.NewUUID()
		db.Exec(t, fmt.Sprintf(`INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers)
			VALUES ('%s', 'order', 'large-%s', 'order.changed', to_jsonb(repeat('x', %d)), '%s')`, id, id, size-2, headers))
		return id
	}
	const limit = "1048588" // what a broker takes unless it is told otherwise
	refused := map[string]struct {
		size    int
		headers string
		code    string
	}{}
	small()
	s.Expect(large(999_900, "{}"), large(1_000_013, "{}"), large(1_047_900, "{}")) // fit
	for _, c := range []struct {
		size    int
		headers string
		code    string
	}{
		{1_047_900, `{"trace": "` + strings.Repeat("h", 1000) + `"}`, "OT5009"}, // for its headers
		{1_048_580, "{}", "OT5009"}, // for what outtail adds
		{1_048_589, "{}", "OT5009"},
		{5_000_000, "{}", "OT5009"},
		{101_000_000, "{}", "OT2060"}, // above limits.row, and what a broker's socket takes
	} {
		id := large(c.size, c.headers)
		refused[id] = c
		small()
	}
	s.Arrived(p)
	p.Until(t, "all others parked", func() bool { return s.Stored().Events == uint64(len(s.Sent)+len(refused)) })
	all := letters(t, s)
	require.Len(t, all, len(refused))
	for _, l := range all {
		c := refused[l.ID]
		require.Equal(t, c.code, l.Code, "%d bytes", c.size)
		told := l.Text
		if c.code == "OT5009" {
			require.Contains(t, told, "max.message.bytes is "+limit)
			takes := regexp.MustCompile(`the record takes (\d+) bytes`).FindStringSubmatch(told)
			require.NotEmpty(t, takes, told)
			n, err := strconv.Atoi(takes[1])
			require.NoError(t, err)
			require.InDelta(t, c.size+len(c.headers)+300, n, 300, "what it weighs with its headers")
		} else {
			require.Contains(t, told, "limits.row")
			require.Contains(t, told, "the row has 101000", "its size")
		}
	}
	require.Equal(t, float64(len(refused)), s.Outtail.Metric(t, "outtail_events_parked_total"), "once each")
	require.Less(t, p.PeakRSS(t), int64(150<<20), "whatever the row's size (I11)")
	s.Stop(p)

	// A topic that takes less than the client would: in front of the event stands the position, over every restart.
	s.Configure("Poison", "halt")
	s.Kafka.AlterTopic(t, s.Topic, "max.message.bytes", "5000")
	small()
	before := s.Stored().Events
	id := large(6000, "{}")
	small()
	for range 2 {
		s.Stops(1, "OT6001", "OT5009", "event "+id, "max.message.bytes is 5000", "the record takes 6")
		require.Equal(t, before+1, s.Stored().Events)
	}
	s.Configure("Poison", "skip")
	p = s.Start()
	s.Arrived(p)
	p.Until(t, "it to be counted", func() bool { return s.Outtail.Metric(t, "outtail_events_filtered_total", `reason="skipped"`) == 1 })
	require.Regexp(t, `msg=skipped .*code=OT5009 .*id=`+id, p.Stderr(), "what is left out is written down")
	s.Stop(p)
}

// A missing topic holds its events and is named until somebody creates it. That is never outtail, also where the broker would do it for the
// asking; and meanwhile memory stays as it is.
func TestB084AMissingTopicIsWaitedForAndNotCreated(t *testing.T) {
	onEach(t, func(t *testing.T, db shop.Database) {
		kafka := obliging(t)
		s := scene.New(t, &servers, db)
		s.UseKafka(kafka)
		s.UseTopic("t." + harness.Unique())
		s.Configure("Brokers", strings.Join(kafka.Brokers(), ", "))
		p := s.Outtail.Start(t)
		p.WaitReady(t) // topics are known only from events
		const events, size = 20_000, 2000
		s.Expect(bulk(t, db, events, size)...)
		require.Contains(t, s.Says(p, "OT5004"), s.Topic)
		status, _ := s.Outtail.Get(t, "/healthz")
		require.Equal(t, 200, status)
		p.Until(t, "the window to be full", func() bool { return s.Outtail.Metric(t, "outtail_inflight_events") == 4096 })
		require.Zero(t, s.Stored().Events)
		require.Empty(t, letters(t, s))
		topics, err := kafka.Admin(t).ListTopics(t.Context())
		require.NoError(t, err)
		require.False(t, topics.Has(s.Topic), "nobody made it")
		require.Less(t, p.PeakRSS(t), int64(120<<20), "memory")

		kafka.CreateTopic(t, s.Topic, 1, nil)
		s.Arrived(p)
		require.Len(t, s.Seen, events, "and once")
		p.WaitReady(t)
		s.Stop(p)
	})
	asked := "t." + harness.Unique()
	cl := obliging(t).Client(t, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(-1))
	ctx, stop := context.WithTimeout(t.Context(), harness.Patience)
	defer stop()
	require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: asked}).FirstErr(), "the broker does make topics")
}

// No broker answers when outtail starts: it stays, says so, keeps the source's session without reading ahead, and begins when one of its
// seeds does. The same where the seeds answer and name brokers that cannot be reached.
func TestB088ABrokerThatCannotBeReachedIsWaitedFor(t *testing.T) {
	t.Parallel()
	port, err := harness.FreePort()
	require.NoError(t, err)
	dead := fmt.Sprintf("127.0.0.1:%d, no-such-host.invalid:9092", port)
	for kind, open := range map[string]func(t *testing.T) shop.Database{
		"postgres": func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
		},
		"mysql": func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) },
	} {
		t.Run(kind, func(t *testing.T) { // one after the other: the proxy is one
			db := open(t)
			impatient(t, db)
			s := scene.New(t, &servers, db)
			proxy := s.Kafka.Proxy
			s.Configure("Brokers", dead+", "+proxy.Addr())
			proxy.Refuse()
			t.Cleanup(func() { proxy.Resume(t) })
			began := time.Now()
			p := s.Outtail.Start(t)
			require.Contains(t, s.Says(p, "OT5001"), proxy.Addr())
			status, _ := s.Outtail.Get(t, "/healthz")
			require.Equal(t, 200, status)
			session := db.Session(t)
			require.NotEmpty(t, session, "the source is held")
			s.Expect(bulk(t, db, 20_000, 2000)...) // 40 MB
			p.Until(t, "longer than the server waits for a silent session", func() bool { return time.Since(began) > 6*time.Second })
			require.Equal(t, session, db.Session(t))
			require.Zero(t, s.Outtail.Metric(t, "outtail_events_read_total"))
			require.Less(t, p.PeakRSS(t), int64(100<<20))
			require.NotContains(t, p.Stderr(), "to=streaming", "not ready before both ends are open")
			proxy.Resume(t)
			s.Arrived(p)
			p.WaitReady(t)
			require.Equal(t, session, db.Session(t))
			s.Stop(p)

			s.Configure("Brokers", s.Kafka.Behind)
			proxy.Refuse()
			p = s.Outtail.Start(t)
			s.Insert(1)
			s.Says(p, "OT5001")
			require.Contains(t, p.Stderr(), "advertised.listeners")
			require.NotZero(t, db.Session(t))
			proxy.Resume(t)
			s.Arrived(p)
			p.WaitReady(t)
			s.Stop(p)
		})
	}
}

// A broker that takes less than the source gives: what is in flight stays within its bytes, reading waits, and the session lives.
func TestB089ASlowBrokerBoundsWhatIsInFlightInBytes(t *testing.T) {
	onEach(t, func(t *testing.T, db shop.Database) {
		impatient(t, db)
		kafka := obliging(t)
		slow(t, kafka, 10<<20)
		s := scene.New(t, &servers, db)
		s.UseKafka(kafka)
		s.UseTopic(kafka.NewTopic(t, 1))
		s.Configure("Brokers", strings.Join(kafka.Brokers(), ", "), "Sink", ", compression: none", "Pipeline", "    limits: { in_flight_bytes: 8MiB }\n")
		p := s.Start()
		session := db.Session(t)
		const events, size, room = 150, 200_000, 8 << 20 // 30 MB
		s.Expect(bulk(t, db, events, size)...)
		full := 0.0
		p.Until(t, "all acked", func() bool {
			acked, bytes := s.Outtail.Metric(t, "outtail_messages_acked_total"), s.Outtail.Metric(t, "outtail_inflight_bytes")
			require.LessOrEqual(t, bytes, float64(room))
			full = max(full, bytes)
			return acked == events
		})
		require.Greater(t, full, float64(room-2*size), "reading had to wait")
		require.Equal(t, session, db.Session(t), "the session was never lost")
		peak := p.PeakRSS(t)
		t.Logf("peak %d MiB", peak>>20)
		require.Less(t, peak, int64(100<<20))
		s.Arrived(p)
		s.Stop(p)
	})
}

// slow bounds what the broker takes from each outtail, in bytes per second.
func slow(t *testing.T, kafka *harness.Kafka, rate float64) {
	t.Helper()
	client := "outtail-orders"
	res, err := kafka.Admin(t).AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &client}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: rate}},
	}})
	require.NoError(t, err)
	for _, r := range res {
		require.NoError(t, r.Err)
	}
}

// Times that a broker of default settings refuses give way to the commit's, the same at every delivery; the event's own stays in its header.
func TestB091ATimestampThatBrokersRefuseGivesWayToTheCommitTime(t *testing.T) {
	t.Parallel()
	future := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Microsecond)
	now := time.Now().UTC().Truncate(time.Microsecond)
	const text = "2006-01-02 15:04:05.999999"
	type occurred struct {
		value  string // as SQL has it
		header string
		at     time.Time // zero: the commit time
	}
	rfc := func(at time.Time) string { return at.Format("2006-01-02T15:04:05.000000Z") }
	common := []occurred{
		{"'" + future.Format(text) + "'", rfc(future), time.Time{}}, // also what a wall clock in another zone gives
		{"'1969-12-31 23:59:59'", "1969-12-31T23:59:59.000000Z", time.Time{}},
		{"NULL", "", time.Time{}},
		{"'" + now.Format(text) + "'", rfc(now), now},
	}
	check := func(t *testing.T, db shop.Database, column string, more ...occurred) (s *scene.Scene, start string) {
		db.Exec(t, column)
		s = scene.New(t, &servers, db)
		p := s.Start()
		start = s.Stored().Source.GTID
		began := time.Now()
		var ids []string
		for _, c := range append(more, common...) {
			id := scene.NewUUID()
			mode := ""
			if db.Kind() != "postgres" {
				mode = "SET sql_mode = ''; "
			}
			db.Exec(t, mode+"INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, occurred_at) VALUES ('"+id+"', 'order', 'order-1', 'order.changed', "+c.value+")")
			s.Expect(id)
			ids = append(ids, id)
		}
		s.Arrived(p)
		for i, c := range append(more, common...) {
			r := record(t, s, ids[i])
			require.Equal(t, c.header, scene.Header(r, "occurred_at"), c.value)
			if c.at.IsZero() {
				require.WithinRange(t, r.Timestamp, began.Truncate(time.Second), time.Now().Add(time.Second), c.value)
			} else {
				require.Equal(t, c.at.UnixMilli(), r.Timestamp.UnixMilli(), c.value)
			}
		}
		require.Equal(t, float64(len(ids)-2), s.Outtail.Metric(t, "outtail_timestamps_replaced_total"), "all but NULL, which has none, and the present")
		s.Stop(p)
		return s, start
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		check(t, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil), "ALTER TABLE outbox ALTER occurred_at TYPE timestamp, ALTER occurred_at DROP NOT NULL",
			occurred{"'infinity'", "infinity", time.Time{}}, occurred{"'-infinity'", "-infinity", time.Time{}})
	})
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s, at := check(t, db, "ALTER TABLE outbox MODIFY occurred_at DATETIME(6) NULL", occurred{"'0000-00-00 00:00:00'", "0000-00-00 00:00:00.000000", time.Time{}})
		// Once more from the log, later: record by record the same.
		first := s.Seen
		r := s.Set(at)
		require.Equal(t, 0, r.Code, r.Stderr)
		s.UseTopic(s.Kafka.NewTopic(t, 1))
		s.UseKafka(s.Kafka)
		s.Configure()
		p := s.Start()
		s.Arrived(p)
		for i, r := range s.Seen {
			require.Equal(t, first[i].Timestamp, r.Timestamp)
			require.Equal(t, first[i].Headers, r.Headers)
		}
		s.Stop(p)
	})
}

// Topics that rows choose are checked before anything is sent: what is no name is told at once, with value and id, and left to its policy.
func TestB130ATopicThatARowNamesIsCheckedBeforeItIsSentTo(t *testing.T) {
	t.Parallel()
	db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
	s := scene.New(t, &servers, db)
	good := s.Topic
	s.UseTopic(`"${event_type}"`)
	s.Configure("Poison", "park")
	s.Topic = good
	p := s.Start()
	values := map[string]string{}
	for i, name := range []string{"Order Paid", "a/b", "é", "..", ".", "", strings.Repeat("x", 250), "orders\n"} {
		id := commit(t, db, row{fmt.Sprint("bad-", i), name, "{}"})[0]
		values[id] = name
	}
	s.Expect(commit(t, db, row{"good", good, "{}"})...)
	s.Arrived(p)
	p.Until(t, "all others parked", func() bool { return len(letters(t, s)) == len(values) })
	for _, l := range letters(t, s) {
		require.Equal(t, "OT6103", l.Code)
		require.Regexp(t, "level=WARN msg=parked .* id "+l.ID+": ", p.Stderr())
		switch name := values[l.ID]; {
		case name == "":
			require.Equal(t, "the topic is empty", l.Text)
			continue
		case len(name) > 200:
			require.Contains(t, l.Text, name[:100])
		default:
			require.Contains(t, l.Text, strconv.Quote(name))
		}
		require.Contains(t, l.Hint, "a topic has 1 to 249 of the characters")
	}
	require.Equal(t, 1.0, s.Outtail.Metric(t, "outtail_messages_sent_total"), "nothing of it went to a broker")
	s.Stop(p)

	// The other policies: in front of it, and without it.
	s.Configure("Poison", "halt")
	id := commit(t, db, row{"bad", "Order Paid", "{}"})[0]
	s.Stops(1, "OT6001", "OT6103", id, "Order Paid")
	s.Configure("Poison", "skip")
	p = s.Start()
	s.Expect(commit(t, db, row{"good", good, "{}"})...)
	s.Arrived(p)
	require.Regexp(t, `msg=skipped .*code=OT6103 .*id=`+id, p.Stderr())
	s.Stop(p)

	// Names that differ in . and _ alone would be one in the broker's metrics, so that it refuses to make the second. It is waited for.
	dot, underscore := good+".a.b", good+".a_b"
	s.Configure("Sink", ", create_topics: { partitions: 1, replication: 1 }")
	p = s.Start()
	commit(t, db, row{"dot", dot, "{}"})
	p.Until(t, "the first of them", func() bool { return s.Outtail.Metric(t, "outtail_messages_acked_total") == 1 })
	commit(t, db, row{"underscore", underscore, "{}"})
	require.Contains(t, s.Says(p, "OT5016"), underscore)
	s.Expect(commit(t, db, row{"good", good, "{}"})...)
	s.Arrived(p)
	require.EqualValues(t, 1, s.Kafka.Count(t, dot))
	s.Kafka.DeleteTopic(t, dot)
	p.WaitReady(t)
	p.Until(t, "the event of the second", func() bool { return s.Outtail.Metric(t, "outtail_inflight_events") == 0 })
	require.EqualValues(t, 1, s.Kafka.Count(t, underscore))
	s.Stop(p)
}
