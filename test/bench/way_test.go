package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// TestWay drains the same backlog over different ways to the database: as it is, with TLS, and with five milliseconds to the server and back. In turn
// with outtail, which delivers, a reader made of the libraries that only counts rows: pglogrepl, and go-mysql's syncer.
func TestWay(t *testing.T) {
	measured(t)
	n := min(*rows, 200_000)
	for _, kind := range strings.Split(*sources, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSource(t, kind)
			var port int
			if s.pg != nil {
				port = s.pg.Port
				cert, key := harness.NewAuthority(t, "bench").Server(t, s.pg.Host, time.Now().Add(24*time.Hour))
				s.pg.UseTLS(t, cert, key)
			} else {
				port = s.my.Port
			}
			s.begin(t)
			s.write(t, load{rows: n, perTx: 10, size: 450})
			far := farAway(t, fmt.Sprintf("127.0.0.1:%d", port), 5*time.Millisecond)
			for run := range *runs {
				for _, way := range []struct {
					name, tls string
					via       int
				}{{"plain", "disable", port}, {"TLS", "require", port}, {"5 ms away", "disable", far}} {
					s.tls, s.via = way.tls, way.via
					f := figures{What: "way", Source: kind, Arm: way.name + ", a reader that counts", Run: run + 1, PerSecond: s.count(t, n)}
					f.record(t)
					f = drain(t, s, &outtail{s: s, label: way.name + ", outtail"}, n)
					f.What, f.Run = "way", run+1
					f.record(t)
				}
			}
		})
	}
}

// count reads n rows as client libraries do, and tells how many there were a second from the first to the last.
func (s *source) count(t *testing.T, n int) float64 {
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	if s.pg != nil {
		return s.countPostgres(ctx, t, n)
	}
	return s.countMySQL(ctx, t, n)
}

func (s *source) countPostgres(ctx context.Context, t *testing.T, n int) float64 {
	c, err := pgconn.Connect(ctx, fmt.Sprintf("host=127.0.0.1 port=%d user=postgres password=%s dbname=%s sslmode=%s replication=database", s.via, harness.RootPassword, s.db, s.tls))
	require.NoError(t, err)
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	require.NoError(t, pglogrepl.StartReplication(ctx, c, s.slot(t, "counted"), 0, pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", "publication_names 'bench'"}}))
	var began time.Time
	for rows := 0; rows < n; {
		m, err := c.ReceiveMessage(ctx)
		require.NoError(t, err)
		data, ok := m.(*pgproto3.CopyData)
		if !ok || len(data.Data) == 0 {
			continue
		}
		if data.Data[0] == pglogrepl.PrimaryKeepaliveMessageByteID {
			require.NoError(t, pglogrepl.SendStandbyStatusUpdate(ctx, c, pglogrepl.StandbyStatusUpdate{WALWritePosition: 1}))
			continue
		}
		x, err := pglogrepl.ParseXLogData(data.Data[1:])
		require.NoError(t, err)
		if row, err := pglogrepl.Parse(x.WALData); err == nil && row.Type() == pglogrepl.MessageTypeInsert {
			if rows++; rows == 1 {
				began = time.Now()
			}
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

func (s *source) countMySQL(ctx context.Context, t *testing.T, n int) float64 {
	o := replication.BinlogSyncerConfig{ServerID: 4_000_000_002, Flavor: "mysql", Host: "127.0.0.1", Port: uint16(s.via), User: "root", Password: harness.RootPassword,
		Logger: slog.New(slog.DiscardHandler)}
	if s.tls == "require" {
		o.TLSConfig = &tls.Config{InsecureSkipVerify: true} // the server's own, which nobody signed
	}
	reader := replication.NewBinlogSyncer(o)
	defer reader.Close()
	set, err := mysql.ParseMysqlGTIDSet(s.gtid)
	require.NoError(t, err)
	stream, err := reader.StartSyncGTID(set)
	require.NoError(t, err)
	var began time.Time
	for rows := 0; rows < n; {
		e, err := stream.GetEvent(ctx)
		require.NoError(t, err)
		if r, ok := e.Event.(*replication.RowsEvent); ok && string(r.Table.Table) == "outbox" {
			if rows == 0 {
				began = time.Now()
			}
			rows += len(r.Rows)
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

// farAway gives a port on which the target is rtt away. As on a long line, some is on its way at once: 4 MiB in each direction.
func farAway(t *testing.T, target string, rtt time.Duration) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener; the rest with the connections
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			go late(near, there, rtt/2)
			go late(there, near, rtt/2)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func late(to, from net.Conn, by time.Duration) {
	type piece struct {
		due time.Time
		b   []byte
	}
	line := make(chan piece, 64)
	go func() {
		defer close(line)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			line <- piece{time.Now().Add(by), b[:n]}
		}
	}()
	for p := range line {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.b); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range line { // what the reader still has
	}
}
