package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// A position that the server cannot serve is never replaced by "latest" (I5): the process ends with 4, names the gap and
// prints the commands to choose from. These tests run the printed commands and see that events flow again.

func TestSlotStops(t *testing.T) {
	server := servers.Postgres(t, "17")
	slot := func(s *scene) string { return s.db.(*shop.Postgres).Slot() }

	t.Run("the slot was dropped", func(t *testing.T) {
		s := newScene(t, shop.NewPostgres(t, server, nil))
		s.prove()
		server.Exec(t, "postgres", "SELECT pg_drop_replication_slot('"+slot(s)+"')")
		lost := s.insertUnseen(1, "order.changed")
		stderr := s.stops(4, "OT2032", slot(s), s.stored().Source.LSN)
		s.stops(4, "OT2032") // a restart by itself decides nothing
		s.takeWay(stderr, "--to now")
		s.prove()
		require.Zero(t, s.times(lost[0]))
	})
	t.Run("somebody else advanced the slot", func(t *testing.T) {
		for _, way := range []string{"--code OT2034", "--to slot"} {
			t.Run(way, func(t *testing.T) {
				s := newScene(t, shop.NewPostgres(t, server, nil))
				s.prove()
				s.insertUnseen(2, "order.changed")
				server.Exec(t, s.db.(*shop.Postgres).DB, "SELECT pg_replication_slot_advance('"+slot(s)+"', pg_current_wal_lsn())")
				stderr := s.stops(4, "OT2034", s.stored().Source.LSN, slot(s))
				s.takeWay(stderr, way)
				s.insert(1)
				s.prove()
			})
		}
	})
}

// TestOtherServer: a position of one server means nothing on another that has not its history.
func TestOtherServer(t *testing.T) {
	for kind, servers := range map[string][2]func(t *testing.T) shop.Database{
		"postgres": {
			func(t *testing.T) shop.Database { return shop.NewPostgres(t, servers.Postgres(t, "17"), nil) },
			func(t *testing.T) shop.Database { return shop.NewPostgres(t, servers.Postgres(t, "15"), nil) },
		},
		"mysql": {
			func(t *testing.T) shop.Database {
				return shop.NewMySQL(t, harness.StartMySQL(t, harness.MySQLOptions{}), "mysql", nil)
			},
			func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) },
		},
	} {
		t.Run(kind, func(t *testing.T) {
			s := newScene(t, servers[0](t))
			s.prove()
			was := s.stored().Source
			s.db = servers[1](t)
			s.configure("Source", s.db.Source(""))
			s.insertUnseen(1, "order.changed")
			code, says := "OT2030", was.LSN
			if kind == "mysql" {
				code, says = "OT3021", was.ServerUUID
			}
			stderr := s.stops(4, code, says)
			require.Equal(t, was, s.stored().Source, "a stop stores nothing")
			s.takeWay(stderr, "--to now")
			s.prove()
		})
	}
}

// TestRenamedPipeline: under a new name nothing is known on MySQL, and `start` would skip what lies in between.
func TestRenamedPipeline(t *testing.T) {
	s := newScene(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
	s.prove()
	at := s.stored().Source.GTID
	s.insert(1)
	b, err := os.ReadFile(s.o.Config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.o.Config, []byte(strings.Replace(string(b), "name: orders", "name: sales", 1)), 0o600))
	s.stops(4, "OT0003", "pipeline sales", "pipeline orders", "--pipeline sales --to '"+at+"'", "--pipeline sales --code OT0003")
	r := s.o.Run(t, "checkpoint", "set", "-c", s.o.Config, "--pipeline", "sales", "--to", at, "--reason", "renamed")
	require.Equal(t, 0, r.Code, r.Stderr)
	s.prove()
}

// TestLostStateAndSlot: where neither the state file nor the slot remembers, data_dir still shows that we ran.
func TestLostStateAndSlot(t *testing.T) {
	server := servers.Postgres(t, "15")
	db := shop.NewPostgres(t, server, nil)
	s := newScene(t, db)
	s.prove()
	require.NoError(t, os.Remove(filepath.Join(s.o.DataDir, "outtail.db")))
	server.Exec(t, "postgres", "SELECT pg_drop_replication_slot('"+db.Slot()+"')")
	s.insertUnseen(1, "order.changed")
	stderr := s.stops(4, "OT2040", db.Slot())
	s.takeWay(stderr, "--to now")
	s.prove()
}

// TestSeveralPipelines: one that fails says so at once and keeps the process unready; the others go on, and the process
// ends with the highest code.
func TestSeveralPipelines(t *testing.T) {
	good := newScene(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
	bad := shop.NewPostgres(t, servers.Postgres(t, "17"), nil)
	poison := newScene(t, bad)
	const second = `
  - name: stock
    source:
      {{.Second}}
    columns: outtail
    routes:
      - { match: { event_type: order.* }, topic: {{.Topic}} }
    sink:
      kafka: { brokers: [{{.Brokers}}] }
`
	good.vars["Second"] = bad.Source("")
	good.o.Rewrite(t, sceneConfiguration+second, good.vars)
	p := good.start()
	poison.insertUnseen(1, "poison.made")
	good.says(p, "OT6001")
	p.Until(t, "the failure to be told", func() bool { return strings.Contains(p.Stderr(), "code=OT6001") })
	for range 3 {
		good.insert(1)
		good.arrived(p)
	}
	status, body := good.o.Get(t, "/readyz")
	require.Equal(t, 503, status)
	for _, r := range reasons(t, body) {
		require.Equal(t, "stock", r.Pipeline)
	}
	require.Equal(t, float64(1), good.o.Metric(t, "outtail_pipeline_state", `pipeline="stock"`, `state="failed"`))
	require.Equal(t, float64(1), good.o.Metric(t, "outtail_pipeline_state", `pipeline="orders"`, `state="streaming"`))
	r := p.Terminate(t)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Equal(t, 1, strings.Count(r.Stderr, "code=OT6001"), "told once")
	require.Contains(t, r.Stderr, "-c "+good.o.Config+" --pipeline stock --to 'after:postgres/")
}

// TestOtherCluster: what the old cluster acknowledged may not be in the new one.
func TestOtherCluster(t *testing.T) {
	other := harness.StartKafka(t, harness.KafkaOptions{})
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := newScene(t, db)
		s.prove()
		s.insert(1)
		s.configure("Brokers", strings.Join(other.Brokers(), ", "))
		old := s.cluster()
		stderr := s.stops(4, "OT6003", old)
		other.CreateTopic(t, s.topic, 1, nil)
		s.takeWay(stderr, "--code OT6003")
		s.kafka, s.consumer, s.seen, s.sent = other, nil, nil, s.sent[1:] // the first is in the old one only
		s.prove()
		require.NotEqual(t, old, s.cluster())
		s.prove() // the acceptance was for once, and the new cluster is the known one now
		s.configure("Brokers", strings.Join(servers.Kafka(t).Brokers(), ", "))
		s.stops(4, "OT6003", old)
	})
}

func (s *scene) cluster() string {
	var state struct {
		Pipelines []struct {
			Sink struct {
				ClusterID string `json:"cluster_id"`
			}
		}
	}
	s.o.CheckpointJSON(s.t, &state)
	require.NotEmpty(s.t, state.Pipelines[0].Sink.ClusterID)
	return state.Pipelines[0].Sink.ClusterID
}

func TestBinlogStops(t *testing.T) {
	server := harness.StartMySQL(t, harness.MySQLOptions{})
	t.Run("needed binlogs were purged", func(t *testing.T) {
		for _, way := range []string{"--to earliest", "--to now", "--code OT3022"} {
			t.Run(way, func(t *testing.T) {
				s := newScene(t, shop.NewMySQL(t, server, "mysql", nil))
				s.prove()
				s.insertUnseen(1, "order.changed")
				server.Exec(t, "", "FLUSH BINARY LOGS")
				server.Exec(t, "", "PURGE BINARY LOGS TO '"+newestBinlog(t, server)+"'")
				if way != "--to now" {
					s.insert(1) // in the log that is still there
				} else {
					s.insertUnseen(1, "order.changed")
				}
				stderr := s.stops(4, "OT3022", "purged", server.Scalar(t, "", "SELECT @@server_uuid"))
				s.takeWay(stderr, way)
				s.prove()
			})
		}
	})
	t.Run("RESET BINARY LOGS AND GTIDS", func(t *testing.T) {
		for _, way := range []string{"--to earliest", "--to now"} {
			t.Run(way, func(t *testing.T) {
				s := newScene(t, shop.NewMySQL(t, server, "mysql", nil))
				s.prove()
				s.insertUnseen(1, "order.changed")
				server.Exec(t, "", "RESET BINARY LOGS AND GTIDS")
				if way == "--to earliest" {
					s.insert(1)
				}
				stderr := s.stops(4, "OT302", s.stored().Source.File)
				s.takeWay(stderr, way)
				s.prove()
			})
		}
	})
}

func newestBinlog(t *testing.T, server *harness.MySQL) string {
	t.Helper()
	var file string
	rows, err := server.DB.QueryContext(t.Context(), "SHOW BINARY LOGS")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var size, encrypted string
		require.NoError(t, rows.Scan(&file, &size, &encrypted))
	}
	require.NoError(t, rows.Err())
	return file
}

// TestPositionsWithoutGTID: a file and a position mean nothing on another server.
func TestPositionsWithoutGTID(t *testing.T) {
	flags := harness.MySQLOptions{Flags: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}}
	one, two := harness.StartMySQL(t, flags), harness.StartMySQL(t, flags)
	s := newScene(t, shop.NewMySQL(t, one, "mysql", nil))
	s.prove()
	at := s.stored().Source
	require.Empty(t, at.GTID)
	require.Equal(t, one.Scalar(t, "", "SELECT @@server_uuid"), at.ServerUUID)
	s.insert(2)
	s.prove()
	last := s.sent[len(s.sent)-1]

	r := s.set(fmt.Sprintf("%s:%d", at.File, at.Pos))
	require.Equal(t, 0, r.Code, r.Stderr)
	s.prove()
	require.Equal(t, 2, s.times(last), "sent again from there")
	require.Equal(t, 1, s.times(s.sent[0]), "what lies before is not")

	s.db = shop.NewMySQL(t, two, "mysql", nil)
	s.configure("Source", s.db.Source(""))
	s.insertUnseen(1, "order.changed")
	stderr := s.stops(4, "OT3020", at.ServerUUID, two.Scalar(t, "", "SELECT @@server_uuid"))
	s.takeWay(stderr, "--to now")
	s.prove()
}

// TestSetPosition: each form of --to, as positions that were stored before.
func TestSetPosition(t *testing.T) {
	// setting: three events; after the first its position is noted. again: how often each is there after setting.
	check := func(t *testing.T, db shop.Database, to func(first entry) string, again []int) {
		s := newScene(t, db)
		s.prove()
		first := s.stored()
		s.insert(1)
		s.prove()
		r := s.set(to(first))
		require.Equal(t, 0, r.Code, r.Stderr)
		require.Contains(t, r.Stdout, "pipeline orders begins at")
		s.prove()
		for i, n := range again {
			require.Equal(t, n, s.times(s.sent[i]), "event %d", i)
		}
		require.Equal(t, 1, s.times(s.sent[len(s.sent)-1]))
	}
	t.Run("postgres", func(t *testing.T) {
		db := func(t *testing.T) shop.Database { return shop.NewPostgres(t, servers.Postgres(t, "15"), nil) }
		t.Run("an LSN that was confirmed already is refused", func(t *testing.T) {
			s := newScene(t, db(t))
			s.prove()
			first := s.stored()
			s.insert(1)
			s.prove()
			r := s.set(first.Source.LSN)
			require.Equal(t, 2, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "cannot send what lies before")
			require.Contains(t, r.Stderr, "hint: --to slot")
			s.prove()
		})
		t.Run("an LSN further on", func(t *testing.T) {
			s := newScene(t, db(t))
			s.prove()
			s.insertUnseen(1, "order.changed")
			r := s.set(servers.Postgres(t, "15").Scalar(t, "postgres", "pg_current_wal_insert_lsn()"))
			require.Equal(t, 0, r.Code, r.Stderr)
			s.prove()
		})
		t.Run("slot", func(t *testing.T) {
			check(t, db(t), func(entry) string { return "slot" }, []int{1, 1, 1})
		})
		t.Run("now", func(t *testing.T) {
			s := newScene(t, db(t))
			s.prove()
			s.insertUnseen(1, "order.changed")
			r := s.set("now")
			require.Equal(t, 0, r.Code, r.Stderr)
			s.prove()
		})
	})
	t.Run("mysql", func(t *testing.T) {
		db := func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) }
		t.Run("a GTID set", func(t *testing.T) {
			check(t, db(t), func(first entry) string { return first.Source.GTID }, []int{1, 2, 2})
		})
		t.Run("FILE:POS", func(t *testing.T) {
			check(t, db(t), func(first entry) string { return fmt.Sprintf("%s:%d", first.Source.File, first.Source.Pos) }, []int{1, 2, 2})
		})
		t.Run("earliest", func(t *testing.T) {
			check(t, db(t), func(entry) string { return "earliest" }, []int{2, 2, 2})
		})
		t.Run("now", func(t *testing.T) {
			s := newScene(t, db(t))
			s.prove()
			s.insertUnseen(1, "order.changed")
			r := s.set("now")
			require.Equal(t, 0, r.Code, r.Stderr)
			s.prove()
		})
	})
	t.Run("refused", func(t *testing.T) {
		eachKind(t, func(t *testing.T, db shop.Database) {
			s := newScene(t, db)
			s.prove()
			before := s.stored()
			for to, code := range map[string]int{"yesterday": 2, "": 2, "after:nonsense": 2, "after:" + db.Kind() + "/x/0/1#7": 2} {
				r := s.set(to)
				require.Equal(t, code, r.Code, "--to %q: %s", to, r.Stderr)
			}
			r := s.o.Run(t, "checkpoint", "set", "-c", s.o.Config, "--pipeline", "nobody", "--to", "now", "--reason", "test")
			require.Equal(t, 2, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "orders", "it lists the names that there are")
			require.Equal(t, before, s.stored(), "nothing was changed")
		})
	})
}

// TestHaltedEvent: an event that cannot be delivered stops the pipeline in its place; the printed command leaves out that
// one and no other.
func TestHaltedEvent(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := newScene(t, db)
		s.useTopic("t." + harness.Unique())
		s.kafka.CreateTopic(t, s.topic, 1, map[string]string{"max.message.bytes": "4000"})
		s.configure("Match", "match: { event_type: order.* }, ")
		s.prove()
		s.insertMixed("order.changed", "poison.made", "order.changed")
		s.insert(1)
		stderr := s.stops(1, "OT6001", "OT6101", `poison.made`)
		s.stops(1, "OT6001") // again: nothing is left out by a restart
		way := printedCommand.FindStringSubmatch(stderr)
		require.NotEmpty(t, way, stderr)
		_, place, _ := strings.Cut(strings.ReplaceAll(way[1], "'", ""), "--to ")
		require.Regexp(t, "^after:"+db.Kind()+"/.*#1$", place)
		s.takeWay(stderr, place)
		s.prove()

		// One that only the broker refuses: told behind what was acked, with what to change there.
		s.insertMixed("order.changed", "order.too_large", "order.changed")
		stderr = s.stops(1, "OT6001", "OT5009", "--add-config max.message.bytes=", "#1")
		way = printedCommand.FindStringSubmatch(stderr)
		require.NotEmpty(t, way, stderr)
		_, place, _ = strings.Cut(strings.ReplaceAll(way[1], "'", ""), "--to ")
		s.takeWay(stderr, place)
		s.prove()
	})
}

// insertMixed commits events of these types in one transaction; those of type order.changed are expected to arrive.
func (s *scene) insertMixed(types ...string) {
	s.t.Helper()
	tx, err := s.db.Begin(s.t.Context())
	require.NoError(s.t, err)
	for _, typ := range types {
		id, payload := newUUID(), "{}"
		if typ == "order.too_large" {
			payload = `{"much": "` + strings.Repeat("x", 5000) + `"}`
		}
		require.NoError(s.t, tx.Exec(s.t.Context(), insertEvent, id, typ, payload))
		if typ == "order.changed" {
			s.sent = append(s.sent, id)
		}
	}
	require.NoError(s.t, tx.Commit(s.t.Context()))
}

// TestDamagedState: a state file that cannot be trusted is left as it is, and nothing is begun anew behind it.
func TestDamagedState(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := newScene(t, db)
		s.prove()
		at := s.stored().Source
		s.insert(1)
		path := filepath.Join(s.o.DataDir, "outtail.db")
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		for name, damage := range map[string]func([]byte) []byte{
			"cut short":   func(b []byte) []byte { return b[:len(b)/2+100] },
			"overwritten": func(b []byte) []byte { return append(make([]byte, 9000), b[9000:]...) },
			"no bbolt":    func([]byte) []byte { return []byte(strings.Repeat("not a state file\n", 1000)) },
		} {
			bad := damage(append([]byte(nil), good...))
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			s.stops(4, "OT4003", path, "hint", "checkpoint set")
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, harness.Digest(bad), harness.Digest(now), "%s: the file is as it was", name)
		}
		// What the hint says: move it away, and say where to go on.
		require.NoError(t, os.Rename(path, path+".damaged"))
		to := "slot"
		if at.Kind == "mysql" {
			s.stops(4, "ran before") // nothing on the server remembers, but data_dir does
			to = at.GTID
		}
		r := s.set(to)
		require.Equal(t, 0, r.Code, r.Stderr)
		s.prove()
	})
}

// TestEmptiedDataDir: on Postgres the slot remembers; on MySQL nothing does, and one line says what that means.
func TestEmptiedDataDir(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := newScene(t, db)
		s.prove()
		require.NoError(t, os.RemoveAll(s.o.DataDir))
		if db.Kind() == "postgres" {
			s.insert(3)
			s.prove()
			return
		}
		s.insertUnseen(3, "order.changed")
		p := s.start()
		s.insert(1)
		s.arrived(p)
		s.stop(p)
		var warnings []string
		for line := range strings.Lines(p.Stderr()) {
			if strings.Contains(line, "level=WARN") {
				warnings = append(warnings, line)
			}
		}
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "nothing before this position is sent")
		require.Contains(t, warnings[0], "start=now")
	})
}
