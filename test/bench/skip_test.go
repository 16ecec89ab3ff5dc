package bench

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

var (
	mib     = flag.Int("mib", 900, "how much binlog is skipped, in MiB: less than 1 GiB, one file")
	profile = flag.String("skip-profile", "", "write a CPU profile of the source's arm to this file")
)

// TestSkip reads a binlog of which 99 of 100 rows are foreign, once with the source and once with a reader that only throws the bytes
// of the same dump away: what the source is slower by is what skipping costs. Arms in turn.
func TestSkip(t *testing.T) {
	if os.Getenv("OUTTAIL_BENCH") == "" {
		t.Skip("a measurement, not a test: make bench")
	}
	for _, c := range []struct{ name, compression, tls string }{{"plain", "OFF", "disable"}, {"tls", "OFF", "require"}, {"compressed", "ON", "disable"}} {
		t.Run(c.name, func(t *testing.T) {
			// With the columns in the log nothing has to be proved, which would be a first reading of it all.
			my := harness.StartMySQL(t, harness.MySQLOptions{Flags: []string{"--binlog-row-metadata=FULL", "--binlog-transaction-compression=" + c.compression}})
			db := my.NewDatabase(t)
			from := foreign(t, my, db, *mib)
			size := logBytes(t, my)
			t.Logf("%d MB of events in a log of %d MB", *mib<<20/1_000_000, size/1_000_000)
			for range *runs {
				timed(t, "bytes thrown away", size, func() { discard(t, my, from, size, c.tls) })
				timed(t, "source", size, func() { skip(t, my, db, from, c.tls) })
			}
		})
	}
}

// foreign writes a log of which one row in a hundred is one of the outbox, in transactions of ten rows of 500 to 2,000 bytes, and names
// its first file. BLACKHOLE logs rows as any engine does, and keeps none.
func foreign(t *testing.T, my *harness.MySQL, db string, mib int) (file string) {
	my.Exec(t, db, "SET GLOBAL sync_binlog = 0; SET GLOBAL innodb_flush_log_at_trx_commit = 0; SET GLOBAL max_binlog_size = 1073741824;"+
		"CREATE TABLE outbox (id BIGINT PRIMARY KEY AUTO_INCREMENT, payload LONGTEXT);"+
		"CREATE TABLE orders (id BIGINT, customer VARCHAR(40), total DECIMAL(12,2), at DATETIME(6), body TEXT) ENGINE = BLACKHOLE; FLUSH BINARY LOGS")
	file = my.Scalar(t, "", "SELECT local->>'$.binary_log_file' FROM performance_schema.log_status")
	row := "(i, UUID(), i / 7, NOW(6), SUBSTR(body, 1, 500 + (i * 379 + %d * 211) %% 1500))"
	values := ""
	for n := range 10 {
		if n > 0 {
			values += ", "
		}
		values += fmt.Sprintf(row, n)
	}
	my.Exec(t, db, fmt.Sprintf(`CREATE PROCEDURE fill() BEGIN DECLARE i INT DEFAULT 0; DECLARE body TEXT DEFAULT '';
		WHILE LENGTH(body) < 2000 DO SET body = CONCAT(body, SHA2(RAND(), 512)); END WHILE;
		SET autocommit = 0;
		WHILE i < %d DO
			INSERT INTO orders VALUES %s;
			IF i %% 10 = 0 THEN INSERT INTO outbox (payload) VALUES (SUBSTR(body, 1, 1000)); END IF;
			COMMIT; SET i = i + 1;
		END WHILE;
		INSERT INTO outbox (payload) VALUES ('end'); COMMIT; END`, mib<<20/13_200, values))
	_, err := my.DB.ExecContext(t.Context(), "CALL `"+db+"`.fill()")
	require.NoError(t, err)
	return file
}

// logBytes is how long the newest file is, which holds all of it.
func logBytes(t *testing.T, my *harness.MySQL) (n int64) {
	rows, err := my.DB.Query("SHOW BINARY LOGS")
	require.NoError(t, err)
	defer rows.Close()
	var sizes []int64
	for rows.Next() {
		var name, encrypted string
		var size int64
		require.NoError(t, rows.Scan(&name, &size, &encrypted))
		sizes = append(sizes, size)
	}
	require.NoError(t, rows.Err())
	return sizes[len(sizes)-1]
}

func timed(t *testing.T, name string, size int64, read func()) {
	began, cpu := time.Now(), used(t)
	read()
	took := time.Since(began)
	t.Logf("%-17s %5.0f MB/s, %.2f CPU-s per GB", name, float64(size)/1e6/took.Seconds(), (used(t)-cpu).Seconds()/float64(size)*1e9)
}

func used(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func discard(t *testing.T, my *harness.MySQL, file string, size int64, mode string) {
	c, err := client.Connect(my.Addr(), "root", harness.RootPassword, "", func(c *client.Conn) error {
		if mode == "require" {
			c.SetTLSConfig(&tls.Config{InsecureSkipVerify: true})
		}
		return nil
	})
	require.NoError(t, err)
	defer c.Close()
	for _, q := range []string{"SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'", "SET @replica_uuid = UUID()"} {
		_, err := c.Execute(q)
		require.NoError(t, err)
	}
	b := append(make([]byte, 4, 64), mysql.COM_BINLOG_DUMP)
	b = binary.LittleEndian.AppendUint32(b, 4)
	b = binary.LittleEndian.AppendUint16(b, 1) // end where the log ends
	b = binary.LittleEndian.AppendUint32(b, 4_000_000_001)
	c.ResetSequence()
	require.NoError(t, c.WritePacket(append(b, file...)))
	buf := make([]byte, 256<<10)
	for n := int64(0); n < size; {
		m, err := c.Read(buf)
		require.NoError(t, err)
		n += int64(m)
	}
}

func skip(t *testing.T, my *harness.MySQL, db, file, mode string) {
	user, password := my.NewUser(t, db)
	o := binlog.Options{
		Kind: event.MySQL, Pipeline: "orders", Host: my.Host, Port: my.Port, User: user, Password: password, Database: db, Tables: []string{"outbox"},
		Seed: t.Name(), Start: binlog.Start{Mode: "position", File: file, Pos: 4}, SpillDir: t.TempDir(), TLS: binlog.TLS{Mode: mode},
	}
	o.Columns[event.ID].Column = "id"
	o.Columns[event.Payload].Column = "payload"
	s, err := binlog.New(o)
	require.NoError(t, err)
	if *profile != "" {
		f, err := os.Create(*profile)
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	_, err = s.Open(ctx, event.Checkpoint{})
	require.NoError(t, err)
	defer s.Close()
	for end := false; !end; {
		b, err := s.Read(ctx)
		require.NoError(t, err)
		for i := range b.Events {
			end = end || string(b.Events[i].Row[event.Payload].Bytes) == "end"
		}
		if k := len(b.Bounds); k > 0 {
			s.Position(b.Bounds[k-1].At)
		}
		if b.Release != nil {
			b.Release()
		}
	}
}
