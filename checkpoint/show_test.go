package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestShowHasTheShapeThatIsPromised(t *testing.T) {
	c := newClock()
	s := open(t, Options{Dir: t.TempDir(), Version: "v0.1.0", Now: c.now})
	st, err := s.Show()
	require.NoError(t, err)
	b, err := json.Marshal(st)
	require.NoError(t, err)
	require.Equal(t, `{"version":1,"pipelines":[]}`, string(b))

	orders := pg(0x16B3748, 12345)
	orders.Prefix = &event.Prefix{Tx: "0/16B3800", Rows: 17, Selection: "internal"}
	orders.Depends = []byte(`{"internal":true}`)
	stock := event.Checkpoint{Position: event.Position{Kind: event.MySQL, ServerUUID: "u", File: "binlog.000002", Pos: 123}, Sink: event.SinkID{Kind: "stdout"}}
	maria := event.Checkpoint{Position: event.Position{Kind: event.MariaDB, ServerID: 1, GTID: "0-1-5", File: "b.000001", Pos: 4}, Sink: orders.Sink}
	save(t, s, map[string]event.Checkpoint{"orders": orders, "stock": stock, "maria": maria})
	require.NoError(t, s.Accept(t.Context(), "orders", "OT2013", By{"ada", "x"}))

	st, err = s.Show()
	require.NoError(t, err)
	b, err = json.Marshal(st)
	require.NoError(t, err)
	const at = `"saved_at":"2026-03-01T12:00:00Z","outtail":"v0.1.0",`
	require.Equal(t, `{"version":1,"pipelines":[`+
		`{"pipeline":"maria",`+at+`"source":{"kind":"mariadb","server_id":1,"gtid":"0-1-5","file":"b.000001","pos":4},`+
		`"prefix":null,"sink":{"kind":"kafka","cluster_id":"c1"},"events":0,"parked":0},`+
		`{"pipeline":"orders",`+at+`"source":{"kind":"postgres","system_id":"7301","timeline":1,"slot":"outtail_orders","lsn":"0/16B3748"},`+
		`"prefix":{"tx":"0/16B3800","rows":17},"sink":{"kind":"kafka","cluster_id":"c1"},"events":12345,"parked":0},`+
		`{"pipeline":"stock",`+at+`"source":{"kind":"mysql","server_uuid":"u","gtid":"","file":"binlog.000002","pos":123},`+
		`"prefix":null,"sink":{"kind":"stdout","cluster_id":""},"events":0,"parked":0}]}`, string(b))

	var back State
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, st, back)
}
