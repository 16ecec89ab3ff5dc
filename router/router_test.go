package router

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/glob"
)

type roles map[event.Role]string

// null marks SQL NULL in a test's row.
const null = "\x00null"

func eventOf(values roles) *event.Event {
	ev := &event.Event{Tx: &event.Tx{Source: "postgres/slot/0/1"}, Index: 3, Table: "public.outbox"}
	for r, v := range values {
		if v == null {
			ev.Row[r] = event.Value{Set: true, Null: true}
			continue
		}
		ev.Row[r] = event.Value{Set: true, Bytes: []byte(v)}
	}
	return ev
}

func newRouter(t *testing.T, onNoRoute NoRoute, routes ...Route) *Router {
	t.Helper()
	rt, err := New(routes, onNoRoute)
	require.NoError(t, err)
	return rt
}

var everything = Route{Topic: "all"}

func TestTheFirstMatchingRouteWins(t *testing.T) {
	rt := newRouter(t, NoRoute{},
		Route{Match: roles{event.EventType: "order.created", event.Tenant: "acme"}, Topic: "acme"},
		Route{Match: roles{event.EventType: "order.*", event.AggregateType: "vip-?"}, Topic: "vip"},
		Route{Match: roles{event.EventType: "order.created"}, Topic: "created"},
		Route{Match: roles{event.EventType: "*.created"}, Topic: "any-created"},
		Route{Match: roles{event.AggregateType: "stock"}, Topic: "stock"},
		Route{Match: roles{event.EventType: "order.created"}, Topic: "never"},
		everything,
	)
	for _, c := range []struct {
		name  string
		row   roles
		topic string
	}{
		{"exact type and tenant", roles{event.EventType: "order.created", event.Tenant: "acme"}, "acme"},
		{"another tenant", roles{event.EventType: "order.created", event.Tenant: "other"}, "created"},
		{"a glob before the exact route", roles{event.EventType: "order.created", event.AggregateType: "vip-1"}, "vip"},
		{"a glob for a type that no route names", roles{event.EventType: "order.paid", event.AggregateType: "vip-1"}, "vip"},
		{"the glob's other role does not match", roles{event.EventType: "order.paid", event.AggregateType: "vip-10"}, "all"},
		{"glob at the front", roles{event.EventType: "stock.created"}, "any-created"},
		{"another role only", roles{event.EventType: "x", event.AggregateType: "stock"}, "stock"},
		{"NULL type matches no pattern on it", roles{event.EventType: null, event.AggregateType: "stock"}, "stock"},
		{"unmapped type", roles{}, "all"},
		{"NULL in another role", roles{event.EventType: "order.created", event.Tenant: null}, "created"},
		{"empty type", roles{event.EventType: ""}, "all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.row[event.AggregateID] = "1"
			var m event.Message
			drop, err := rt.Route(eventOf(c.row), &m)
			require.NoError(t, err)
			require.False(t, drop)
			require.Equal(t, c.topic, m.Topic)
		})
	}
}

func TestTheTableAgreesWithReadingTheRoutesOneByOne(t *testing.T) {
	word := rapid.StringMatching(`[ab]{0,2}`)
	pattern := rapid.StringMatching(`[ab*?]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		var routes []Route
		for i := range rapid.IntRange(0, 6).Draw(t, "routes") {
			match := roles{}
			for _, r := range []event.Role{event.EventType, event.AggregateType} {
				if rapid.Bool().Draw(t, "condition") {
					match[r] = pattern.Draw(t, "pattern")
				}
			}
			routes = append(routes, Route{Match: match, Topic: "t" + string(rune('0'+i))})
		}
		rt, err := New(routes, NoRoute{Drop: true})
		if err != nil {
			t.Fatal(err)
		}
		row := roles{event.AggregateID: "1"}
		for _, r := range []event.Role{event.EventType, event.AggregateType} {
			switch rapid.IntRange(0, 3).Draw(t, "value") {
			case 0: // unmapped
			case 1:
				row[r] = null
			default:
				row[r] = word.Draw(t, "text")
			}
		}
		want := ""
		for _, r := range routes {
			ok := true
			for role, p := range r.Match {
				v, set := row[role]
				ok = ok && set && v != null && glob.Compile(p).MatchString(v)
			}
			if ok {
				want = r.Topic
				break
			}
		}
		var m event.Message
		drop, err := rt.Route(eventOf(row), &m)
		if err != nil || m.Topic != want || drop != (want == "") {
			t.Fatalf("got topic %q, drop %v, %v; want %q", m.Topic, drop, err, want)
		}
	})
}

func TestTopicsOfRowsAndTemplates(t *testing.T) {
	rt := newRouter(t, NoRoute{},
		Route{Match: roles{event.EventType: "row"}, Topic: "${topic}"},
		Route{Match: roles{event.EventType: "header"}, Topic: "r.${headers.region}"},
		Route{Topic: "outbox.event.${aggregate_type}"},
	)
	for _, c := range []struct {
		name  string
		row   roles
		topic string
		code  string
	}{
		{"the row's own", roles{event.EventType: "row", event.Topic: "orders"}, "orders", ""},
		{"again, remembered", roles{event.EventType: "row", event.Topic: "orders"}, "orders", ""},
		{"NULL", roles{event.EventType: "row", event.Topic: null}, "", "OT6102"},
		{"empty", roles{event.EventType: "row", event.Topic: ""}, "", "OT6103"},
		{"not a name", roles{event.EventType: "row", event.Topic: "a b"}, "", "OT6103"},
		{"dots only", roles{event.EventType: "row", event.Topic: ".."}, "", "OT6103"},
		{"too long", roles{event.EventType: "row", event.Topic: strings.Repeat("x", 250)}, "", "OT6103"},
		{"as long as allowed", roles{event.EventType: "row", event.Topic: strings.Repeat("x", 249)}, strings.Repeat("x", 249), ""},
		{"a header", roles{event.EventType: "header", event.Headers: `{"region":"eu"}`}, "r.eu", ""},
		{"the last of two headers", roles{event.EventType: "header", event.Headers: `{"region":"eu","region":"us"}`}, "r.us", ""},
		{"a null header", roles{event.EventType: "header", event.Headers: `{"region":null}`}, "", "OT6102"},
		{"no header", roles{event.EventType: "header", event.Headers: `{}`}, "", "OT6102"},
		{"NULL headers", roles{event.EventType: "header", event.Headers: null}, "", "OT6102"},
		{"broken headers", roles{event.EventType: "header", event.Headers: `{"region":`}, "", "OT6106"},
		{"text and role", roles{event.AggregateType: "Order"}, "outbox.event.Order", ""},
		{"text and missing role", roles{}, "", "OT6102"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.row[event.AggregateID], c.row[event.ID] = "1", "e-1"
			var m event.Message
			_, err := rt.Route(eventOf(c.row), &m)
			requireFault(t, c.code, err)
			require.Equal(t, c.topic, m.Topic)
		})
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		name, template string
		row            roles
		key            string
		code           string
	}{
		{"the aggregate's id", "", roles{event.AggregateID: "7"}, "7", ""},
		{"the role key wins", "", roles{event.AggregateID: "7", event.Key: "k"}, "k", ""},
		{"a NULL role key means the aggregate's id", "", roles{event.AggregateID: "7", event.Key: null}, "7", ""},
		{"an empty key is a key", "", roles{event.AggregateID: ""}, "", ""},
		{"NULL id", "", roles{event.AggregateID: null}, "", "OT6104"},
		{"nothing mapped", "", roles{}, "", "OT6104"},
		{"a template of one role", "${tenant}", roles{event.AggregateID: "7", event.Tenant: "acme"}, "acme", ""},
		{"a template of several", "${tenant}/${aggregate_id}", roles{event.AggregateID: "7", event.Tenant: "acme"}, "acme/7", ""},
		{"a constant", "one", roles{}, "one", ""},
		{"a template over NULL", "${tenant}", roles{event.AggregateID: "7", event.Tenant: null}, "", "OT6102"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := newRouter(t, NoRoute{}, Route{Topic: "t", Key: c.template})
			var m event.Message
			_, err := rt.Route(eventOf(c.row), &m)
			requireFault(t, c.code, err)
			if c.code == "" {
				require.NotNil(t, m.Key, "nil would be no key")
				require.Equal(t, c.key, string(m.Key))
			}
		})
	}
}

// What has no topic keeps its key: it may be sent to another, and its order goes with it.
func TestTheKeyIsKnownWhereTheTopicIsNot(t *testing.T) {
	for _, c := range []struct {
		name           string
		topic, key     string
		row            roles
		code           string
		want, waitsFor string
	}{
		{"no topic name", "${topic}", "", roles{event.Topic: "a b", event.AggregateID: "7"}, "OT6103", "7", "7"},
		{"a NULL topic", "${topic}", "", roles{event.Topic: null, event.AggregateID: "7", event.Key: "k"}, "OT6102", "k", "7"},
		{"the route's template", "${topic}", "${tenant}", roles{event.Topic: null, event.Tenant: "acme"}, "OT6102", "acme", "acme"},
		{"neither", "${topic}", "${tenant}", roles{event.Topic: null, event.AggregateID: "7"}, "OT6102", "", "7"},
		{"headers that cannot be read", "${headers.a}", "", roles{event.Headers: "{", event.AggregateID: "7"}, "OT6106", "7", "7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := newRouter(t, NoRoute{}, Route{Topic: c.topic, Key: c.key})
			var m event.Message
			_, err := rt.Route(eventOf(c.row), &m)
			requireFault(t, c.code, err)
			require.Equal(t, c.want, string(m.Key))
			require.Equal(t, c.waitsFor, m.Aggregate)
		})
	}
}

func TestAnEmptyValueWithoutBytesIsStillAKey(t *testing.T) {
	rt := newRouter(t, NoRoute{}, everything)
	ev := eventOf(nil)
	ev.Row[event.AggregateID] = event.Value{Set: true}
	var m event.Message
	_, err := rt.Route(ev, &m)
	require.NoError(t, err)
	require.NotNil(t, m.Key)
}

func TestAggregatesAreKeptApart(t *testing.T) {
	rt := newRouter(t, NoRoute{}, Route{Topic: "t", Key: "${tenant}"})
	name := func(row roles) string {
		row[event.Tenant] = "acme"
		var m event.Message
		_, err := rt.Route(eventOf(row), &m)
		require.NoError(t, err)
		return m.Aggregate
	}
	order1 := name(roles{event.AggregateType: "order", event.AggregateID: "1"})
	require.Equal(t, order1, name(roles{event.AggregateType: "order", event.AggregateID: "1", event.Key: "other"}))
	require.NotEqual(t, order1, name(roles{event.AggregateType: "order", event.AggregateID: "2"}))
	require.NotEqual(t, order1, name(roles{event.AggregateType: "orde", event.AggregateID: "r1"}))
	require.Equal(t, "1", name(roles{event.AggregateID: "1"}))
	require.Equal(t, "k", name(roles{event.Key: "k"}))
	require.Equal(t, "acme", name(roles{}), "the message's key stands in")
}

func TestPartitions(t *testing.T) {
	rt := newRouter(t, NoRoute{}, everything)
	for value, want := range map[string]int32{null: -1, "0": 0, "12": 12, "2147483647": 2147483647} {
		m := event.Message{Partition: 99}
		_, err := rt.Route(eventOf(roles{event.AggregateID: "1", event.Partition: value}), &m)
		require.NoError(t, err)
		require.Equal(t, want, m.Partition, "%q", value)
	}
	for _, value := range []string{"", "-1", "1.0", "x", "2147483648", "99999999999"} {
		var m event.Message
		_, err := rt.Route(eventOf(roles{event.AggregateID: "1", event.Partition: value}), &m)
		requireFault(t, "OT6105", err)
	}
}

func TestNoRouteFollowsThePolicy(t *testing.T) {
	ev := eventOf(roles{event.ID: "e-1", event.EventType: "order.paid", event.AggregateID: "1", event.Payload: "SECRET"})
	only := Route{Match: roles{event.EventType: "order.created"}, Topic: "t"}

	var m event.Message
	drop, err := newRouter(t, NoRoute{Drop: true}, only).Route(ev, &m)
	require.NoError(t, err)
	require.True(t, drop)

	drop, err = newRouter(t, NoRoute{}, only).Route(ev, &m)
	require.False(t, drop)
	f := requireFault(t, "OT6101", err)
	for _, part := range []string{"public.outbox", "postgres/slot/0/1#3", "e-1", "order.paid"} {
		require.Contains(t, f.Error(), part)
	}
	require.NotContains(t, f.Error()+f.Hint, "SECRET")
	require.Equal(t, "e-1", m.ID)
	require.Equal(t, "1", m.Aggregate, "what follows has to be held behind it")
}

func TestWhatAMessageKeepsDoesNotAliasTheBatch(t *testing.T) {
	rt := newRouter(t, NoRoute{}, Route{Topic: "${topic}"})
	ev := eventOf(roles{event.ID: "e-1", event.Topic: "orders", event.AggregateType: "order", event.AggregateID: "1"})
	var m event.Message
	_, err := rt.Route(ev, &m)
	require.NoError(t, err)
	for r := range ev.Row {
		clear(ev.Row[r].Bytes)
	}
	require.Equal(t, "e-1", m.ID)
	require.Equal(t, "orders", m.Topic)
	require.Equal(t, "order\x001", m.Aggregate)
}

func TestManyTopicsStayBounded(t *testing.T) {
	known := topics{}
	for i := range 3 * maxTopics {
		_, ok := known.intern([]byte("t" + strconv.Itoa(i)))
		require.True(t, ok)
		require.LessOrEqual(t, len(known), maxTopics)
	}
}

func TestBadRoutesAreRefused(t *testing.T) {
	for says, r := range map[string]Route{
		"routes[0].topic: \"\"":        {},
		"routes[0].topic: \"a b\"":     {Topic: "a b"},
		"routes[0].topic: ${aggregate": {Topic: "${aggregate}"},
		"routes[0].key: ":              {Topic: "t", Key: "${"},
		"unknown role 200":             {Topic: "t", Match: roles{200: "x"}},
	} {
		_, err := New([]Route{r}, NoRoute{})
		require.ErrorContains(t, err, says)
	}
}

func TestRoutingHardlyAllocates(t *testing.T) {
	rt := newRouter(t, NoRoute{},
		Route{Match: roles{event.EventType: "order.created"}, Topic: "orders.created"},
		Route{Match: roles{event.EventType: "*"}, Topic: "${topic}"},
	)
	for _, ev := range []*event.Event{
		eventOf(roles{event.ID: "e-1", event.EventType: "order.created", event.AggregateType: "order", event.AggregateID: "1"}),
		eventOf(roles{event.ID: "e-1", event.EventType: "order.paid", event.Topic: "orders", event.AggregateID: "1"}),
	} {
		var m event.Message
		require.Less(t, testing.AllocsPerRun(5000, func() { _, _ = rt.Route(ev, &m) }), 1.0)
	}
}

func BenchmarkRoute(b *testing.B) {
	rt, err := New([]Route{
		{Match: roles{event.EventType: "order.created"}, Topic: "orders.created"},
		{Match: roles{event.EventType: "order.*"}, Topic: "orders.${event_type}"},
	}, NoRoute{})
	require.NoError(b, err)
	for name, kind := range map[string]string{"constant": "order.created", "template": "order.paid"} {
		ev := eventOf(roles{
			event.ID: "5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01", event.EventType: kind,
			event.AggregateType: "order", event.AggregateID: "4711",
		})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var m event.Message
			for b.Loop() {
				if _, err := rt.Route(ev, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func requireFault(t *testing.T, code string, err error) *event.Fault {
	t.Helper()
	if code == "" {
		require.NoError(t, err)
		return nil
	}
	f := event.AsFault(err)
	require.NotNil(t, f, "want %s", code)
	require.Equal(t, code, f.Code)
	require.Equal(t, event.Record, f.Class)
	require.NotEmpty(t, f.Hint)
	return f
}
