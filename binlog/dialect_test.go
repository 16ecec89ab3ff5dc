package binlog

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	mysqld "github.com/go-mysql-org/go-mysql/server"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// dialect is how one version answers where versions differ. It stands for servers that no test runs.
type dialect struct {
	auth      string
	refuses   []string // beginnings of statements that are a syntax error there
	variables map[string]string
	gtid      bool
}

const dialectUUID = "aa000000-0000-0000-0000-000000000000"

// dialectServer answers what a source asks, in a dialect, and sends a small log.
type dialectServer struct {
	mysqld.EmptyReplicationHandler
	t *testing.T
	d *dialect
	w *logWriter

	mu    sync.Mutex
	asked []string
	dumps []string
}

func (s *dialectServer) UseDB(string) error { return nil }

func rows(names []string, values ...[]any) (*mysql.Result, error) {
	r, err := mysql.BuildSimpleTextResultset(names, values)
	if err != nil {
		return nil, err
	}
	return mysql.NewResult(r), nil
}

// list gives as many columns as a SELECT of functions asks for.
func list(q string, value any) (*mysql.Result, error) {
	n := strings.Count(q, "_LOCK(")
	names, row := make([]string, n), make([]any, n)
	for i := range names {
		names[i], row[i] = fmt.Sprint("c", i), value
	}
	return rows(names, row)
}

func (s *dialectServer) HandleQuery(q string) (*mysql.Result, error) {
	s.mu.Lock()
	s.asked = append(s.asked, q)
	s.mu.Unlock()
	for _, r := range s.d.refuses {
		if strings.HasPrefix(q, r) {
			return nil, mysql.NewDefaultError(mysql.ER_PARSE_ERROR, "You have an error in your SQL syntax", r, 1)
		}
	}
	executed := ""
	if s.d.gtid {
		executed = dialectUUID + ":1-2"
	}
	switch {
	case strings.HasPrefix(q, "SET "):
		if strings.Contains(q, "show_gipk") && s.d.variables["show_gipk_in_create_table_and_information_schema"] == "" {
			return nil, mysql.NewDefaultError(mysql.ER_UNKNOWN_SYSTEM_VARIABLE, "show_gipk_in_create_table_and_information_schema")
		}
		return nil, nil
	case strings.HasPrefix(q, "DO "), strings.HasPrefix(q, "KILL "):
		return nil, nil
	case strings.HasPrefix(q, "SHOW GLOBAL VARIABLES"):
		var out [][]any
		for k, v := range s.d.variables {
			out = append(out, []any{k, v})
		}
		return rows([]string{"Variable_name", "Value"}, out...)
	case q == "SELECT @@global.gtid_purged":
		return rows([]string{"v"}, []any{""})
	case q == "SELECT @@global.gtid_owned":
		return rows([]string{"v"}, []any{""})
	case q == "SELECT @@global.gtid_executed":
		return rows([]string{"v"}, []any{executed})
	case q == "SELECT @@global.server_uuid":
		return rows([]string{"v"}, []any{dialectUUID})
	case strings.Contains(q, "COLLATIONS"):
		return rows([]string{"ID", "CHARACTER_SET_NAME"}, []any{45, "utf8mb4"}, []any{63, "binary"})
	case q == "SHOW GRANTS":
		return rows([]string{"g"}, []any{"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `outtail`@`%`"}, []any{"GRANT SELECT ON `shop`.`outbox` TO `outtail`@`%`"})
	case strings.Contains(q, "information_schema.COLUMNS"):
		return rows([]string{"COLUMN_NAME", "COLUMN_TYPE", "CHARACTER_SET_NAME"}, []any{"id", "bigint", nil}, []any{"payload", "longtext", "utf8mb4"})
	case strings.HasPrefix(q, "SELECT GET_LOCK"):
		return list(q, 1)
	case strings.Contains(q, "CONNECTION_ID()"):
		return list(q, 1)
	case strings.HasPrefix(q, "SELECT IS_USED_LOCK"):
		return list(q, nil)
	case q == "SHOW BINARY LOGS":
		return rows([]string{"Log_name", "File_size", "Encrypted"}, []any{"binlog.000001", s.w.pos, "No"})
	case q == "SHOW BINARY LOG STATUS", q == "SHOW MASTER STATUS":
		return rows([]string{"File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB", "Executed_Gtid_Set"}, []any{"binlog.000001", s.w.pos, "", "", executed})
	case strings.Contains(q, "information_schema.ENGINES"):
		return rows([]string{"TRANSACTIONS"}, []any{"YES"})
	case strings.Contains(q, "information_schema."):
		return rows([]string{"nothing"})
	case q == "XA RECOVER":
		return rows([]string{"formatID", "gtrid_length", "bqual_length", "data"}, []any{1, 1, 0, "x"})
	}
	return nil, mysql.NewDefaultError(mysql.ER_NOT_SUPPORTED_YET, q)
}

func (s *dialectServer) HandleRegisterSlave([]byte) error { return nil }

func (s *dialectServer) HandleBinlogDump(pos mysql.Position) (*replication.BinlogStreamer, error) {
	return s.dump("file", s.w.from(s.w.Bytes(), pos.Name, uint64(pos.Pos)))
}

func (s *dialectServer) HandleBinlogDumpGTID(*mysql.MysqlGTIDSet) (*replication.BinlogStreamer, error) {
	return s.dump("gtid", s.w.from(s.w.Bytes(), "binlog.000001", 4))
}

func (s *dialectServer) dump(how string, packets []byte) (*replication.BinlogStreamer, error) {
	s.mu.Lock()
	s.dumps = append(s.dumps, how)
	s.mu.Unlock()
	out := replication.NewBinlogStreamer()
	for len(packets) > 0 {
		n := frameLen(packets)
		ev := packets[4+1 : 4+n]
		if err := out.AddEventToStreamer(&replication.BinlogEvent{RawData: ev}); err != nil {
			return nil, err
		}
		packets = packets[4+n:]
	}
	s.t.Cleanup(func() { out.AddErrorToStreamer(errors.New("the test is over")) })
	return out, nil
}

func TestB141EachVersionIsAskedInItsOwnWords(t *testing.T) {
	common := map[string]string{
		"server_uuid": dialectUUID, "server_id": "1", "gtid_mode": "ON", "log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL",
		"binlog_row_metadata": "MINIMAL", "lower_case_table_names": "0",
	}
	with := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for k, v := range common {
			m[k] = v
		}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	// Before 8.2 there is no SHOW BINARY LOG STATUS, after 8.3 no SHOW MASTER STATUS; generated invisible keys came with 8.0.30.
	older, newer := []string{"SHOW BINARY LOG STATUS"}, []string{"SHOW MASTER STATUS"}
	conf := mysqld.NewDefaultServer() // makes keys, which takes a while
	const gipk = "show_gipk_in_create_table_and_information_schema"
	for name, d := range map[string]dialect{
		"8.0.11":          {auth: mysql.AUTH_NATIVE_PASSWORD, refuses: older, variables: with("version", "8.0.11"), gtid: true},
		"8.0.44":          {auth: mysql.AUTH_CACHING_SHA2_PASSWORD, refuses: older, variables: with("version", "8.0.44", gipk, "ON"), gtid: true},
		"8.0, GTIDs off":  {auth: mysql.AUTH_NATIVE_PASSWORD, refuses: older, variables: with("version", "8.0.44-debug", gipk, "ON", "gtid_mode", "OFF")},
		"8.2, both words": {auth: mysql.AUTH_NATIVE_PASSWORD, variables: with("version", "8.2.0", gipk, "ON"), gtid: true},
		"8.4":             {auth: mysql.AUTH_CACHING_SHA2_PASSWORD, refuses: newer, variables: with("version", "8.4.7", gipk, "ON"), gtid: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			begin := w.pos
			for i := range int64(2) {
				if d.gtid {
					w.gtid(i + 1)
				} else {
					w.anonymous()
				}
				w.query("BEGIN")
				w.outboxMap()
				w.rows(uint64(i), fmt.Sprint("row ", i))
				w.xid()
			}
			h := &dialectServer{t: t, d: &d, w: w}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			users := mysqld.NewInMemoryAuthenticationHandler(d.auth)
			require.NoError(t, users.AddUser("outtail", "secret"))
			var serving sync.WaitGroup
			serving.Go(func() { // ends with the listener
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serving.Go(func() { // ends when the source closes the connection, or the dump with the test
						defer c.Close()
						sc, err := conf.NewCustomizedConn(c, users, h)
						for err == nil {
							err = sc.HandleCommand()
						}
					})
				}
			})
			t.Cleanup(serving.Wait)
			t.Cleanup(func() { _ = l.Close() })

			o := Options{
				Kind: event.MySQL, Pipeline: "orders", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "outtail", Password: "secret", Tables: []string{"shop.outbox"},
				Seed: t.Name(), Start: Start{Mode: "position", File: "binlog.000001", Pos: uint64(begin)}, TLS: TLS{Mode: "disable"}, Logger: slog.New(slog.DiscardHandler),
			}
			o.Columns[event.Payload].Column = "payload"
			s, err := New(o)
			require.NoError(t, err)
			_, err = s.Open(t.Context(), event.Checkpoint{})
			require.NoError(t, err)
			var got []string
			for len(got) < 2 {
				b, err := s.Read(t.Context())
				require.NoError(t, err)
				for i := range b.Events {
					got = append(got, string(b.Events[i].Row[event.Payload].Bytes))
				}
			}
			require.Equal(t, []string{"row 0", "row 1"}, got)
			require.NoError(t, s.Close())

			set, err := CheckSet(t.Context(), o, "now")
			require.NoError(t, err)
			require.Equal(t, uint64(w.pos), set.Position.Pos)
			require.Equal(t, d.gtid, set.Position.GTID != "")
		})
	}
}
