package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// A position that the server cannot serve is never replaced by "latest" (I5): the process ends with 4, names the gap and
// prints the commands to choose from. These tests run the printed commands and see that events flow again.

func TestSlotStops(t *testing.T) {
	server := servers.Postgres(t, harness.NewestPostgres())
	slot := func(s *scene.Scene) string { return s.DB.(*shop.Postgres).Slot() }

	t.Run("the slot was dropped", func(t *testing.T) {
		s := scene.New(t, &servers, shop.NewPostgres(t, server, nil))
		s.Prove()
		server.Exec(t, "postgres", "SELECT pg_drop_replication_slot('"+slot(s)+"')")
		lost := s.InsertUnseen(1, "order.changed")
		stderr := s.Stops(4, "OT2032", slot(s), s.Stored().Source.LSN)
		s.Stops(4, "OT2032") // a restart by itself decides nothing
		s.TakeWay(stderr, "--to now")
		s.Prove()
		require.Zero(t, s.Times(lost[0]))
	})
	t.Run("somebody else advanced the slot", func(t *testing.T) {
		for _, way := range []string{"--code OT2034", "--to slot"} {
			t.Run(way, func(t *testing.T) {
				s := scene.New(t, &servers, shop.NewPostgres(t, server, nil))
				s.Prove()
				s.InsertUnseen(2, "order.changed")
				server.Exec(t, s.DB.(*shop.Postgres).DB, "SELECT pg_replication_slot_advance('"+slot(s)+"', pg_current_wal_lsn())")
				stderr := s.Stops(4, "OT2034", s.Stored().Source.LSN, slot(s))
				s.TakeWay(stderr, way)
				s.Insert(1)
				s.Prove()
			})
		}
	})
}

// TestOtherServer: a position of one server means nothing on another that has not its history.
func TestOtherServer(t *testing.T) {
	for kind, pair := range map[string][2]func(t *testing.T) shop.Database{
		"postgres": {
			func(t *testing.T) shop.Database {
				return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
			},
			func(t *testing.T) shop.Database {
				return shop.NewPostgres(t, servers.Postgres(t, harness.OldestPostgres()), nil)
			},
		},
		"mysql": {
			func(t *testing.T) shop.Database {
				return shop.NewMySQL(t, harness.StartMySQL(t, harness.MySQLOptions{}), "mysql", nil)
			},
			func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) },
		},
	} {
		t.Run(kind, func(t *testing.T) {
			s := scene.New(t, &servers, pair[0](t))
			s.Prove()
			was := s.Stored().Source
			s.DB = pair[1](t)
			s.Configure("Source", s.DB.Source(""))
			s.InsertUnseen(1, "order.changed")
			code, says := "OT2030", was.LSN
			if kind == "mysql" {
				code, says = "OT3021", was.ServerUUID
			}
			stderr := s.Stops(4, code, says)
			require.Equal(t, was, s.Stored().Source, "a stop stores nothing")
			s.TakeWay(stderr, "--to now")
			s.Prove()
		})
	}
}

// TestRenamedPipeline: under a new name nothing is known on MySQL, and `start` would skip what lies in between.
func TestRenamedPipeline(t *testing.T) {
	s := scene.New(t, &servers, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
	s.Prove()
	at := s.Stored().Source.GTID
	s.Insert(1)
	b, err := os.ReadFile(s.Outtail.Config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Outtail.Config, []byte(strings.Replace(string(b), "name: orders", "name: sales", 1)), 0o600))
	s.Stops(4, "OT0003", "pipeline sales", "pipeline orders", "--pipeline sales --to '"+at+"'", "--pipeline sales --code OT0003")
	r := s.Outtail.Run(t, "checkpoint", "set", "-c", s.Outtail.Config, "--pipeline", "sales", "--to", at, "--reason", "renamed")
	require.Equal(t, 0, r.Code, r.Stderr)
	s.Prove()
}

// TestLostStateAndSlot: where neither the state file nor the slot remembers, data_dir still shows that we ran.
func TestLostStateAndSlot(t *testing.T) {
	server := servers.Postgres(t, harness.OldestPostgres())
	db := shop.NewPostgres(t, server, nil)
	s := scene.New(t, &servers, db)
	s.Prove()
	require.NoError(t, os.Remove(filepath.Join(s.Outtail.DataDir, "outtail.db")))
	server.Exec(t, "postgres", "SELECT pg_drop_replication_slot('"+db.Slot()+"')")
	s.InsertUnseen(1, "order.changed")
	stderr := s.Stops(4, "OT2040", db.Slot())
	s.TakeWay(stderr, "--to now")
	s.Prove()
}

// TestSeveralPipelines: one that fails says so at once and keeps the process unready; the others go on, and the process
// ends with the highest code.
func TestSeveralPipelines(t *testing.T) {
	good := scene.New(t, &servers, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
	bad := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
	poison := scene.New(t, &servers, bad)
	const second = `
  - name: stock
    source:
      {{.Second}}
    columns: outtail
    routes:
      - { match: { event_type: order.* }, topic: {{.Topic}} }
    on_no_route: halt
    sink:
      kafka: { brokers: [{{.Brokers}}] }
`
	good.Vars["Second"] = bad.Source("")
	good.Outtail.Rewrite(t, scene.Configuration+second, good.Vars)
	p := good.Start()
	poison.InsertUnseen(1, "poison.made")
	good.Says(p, "OT6001")
	p.Until(t, "the failure to be told", func() bool { return strings.Contains(p.Stderr(), "code=OT6001") })
	for range 3 {
		good.Insert(1)
		good.Arrived(p)
	}
	status, body := good.Outtail.Get(t, "/readyz")
	require.Equal(t, 503, status)
	for _, r := range scene.Reasons(t, body) {
		require.Equal(t, "stock", r.Pipeline)
	}
	require.Equal(t, float64(1), good.Outtail.Metric(t, "outtail_pipeline_state", `pipeline="stock"`, `state="failed"`))
	require.Equal(t, float64(1), good.Outtail.Metric(t, "outtail_pipeline_state", `pipeline="orders"`, `state="streaming"`))
	r := p.Terminate(t)
	require.Equal(t, 1, r.Code, r.Stderr)
	require.Equal(t, 1, strings.Count(r.Stderr, "code=OT6001"), "told once")
	require.Contains(t, r.Stderr, "-c "+good.Outtail.Config+" --pipeline stock --to 'after:postgres/")
}

// TestOtherCluster: what the old cluster acknowledged may not be in the new one.
func TestOtherCluster(t *testing.T) {
	other := harness.StartKafka(t, harness.KafkaOptions{})
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := scene.New(t, &servers, db)
		s.Prove()
		s.Insert(1)
		s.Configure("Brokers", strings.Join(other.Brokers(), ", "))
		old := cluster(s)
		stderr := s.Stops(4, "OT6003", old)
		other.CreateTopic(t, s.Topic, 1, nil)
		s.TakeWay(stderr, "--code OT6003")
		s.UseKafka(other)
		s.Sent = s.Sent[1:] // the first is in the old one only
		s.Prove()
		require.NotEqual(t, old, cluster(s))
		s.Prove() // the acceptance was for once, and the new cluster is the known one now
		s.Configure("Brokers", strings.Join(servers.Kafka(t).Brokers(), ", "))
		s.Stops(4, "OT6003", old)
	})
}

func cluster(s *scene.Scene) string {
	var state struct {
		Pipelines []struct {
			Sink struct {
				ClusterID string `json:"cluster_id"`
			}
		}
	}
	s.Outtail.CheckpointJSON(s.T, &state)
	require.NotEmpty(s.T, state.Pipelines[0].Sink.ClusterID)
	return state.Pipelines[0].Sink.ClusterID
}

func TestBinlogStops(t *testing.T) {
	server := harness.StartMySQL(t, harness.MySQLOptions{})
	t.Run("needed binlogs were purged", func(t *testing.T) {
		for _, way := range []string{"--to earliest", "--to now", "--code OT3022"} {
			t.Run(way, func(t *testing.T) {
				s := scene.New(t, &servers, shop.NewMySQL(t, server, "mysql", nil))
				s.Prove()
				s.InsertUnseen(1, "order.changed")
				server.Exec(t, "", "FLUSH BINARY LOGS")
				server.Exec(t, "", "PURGE BINARY LOGS TO '"+newestBinlog(t, server)+"'")
				if way != "--to now" {
					s.Insert(1) // in the log that is still there
				} else {
					s.InsertUnseen(1, "order.changed")
				}
				stderr := s.Stops(4, "OT3022", "purged", server.Scalar(t, "", "SELECT @@server_uuid"))
				s.TakeWay(stderr, way)
				s.Prove()
			})
		}
	})
	t.Run("RESET BINARY LOGS AND GTIDS", func(t *testing.T) {
		for _, way := range []string{"--to earliest", "--to now"} {
			t.Run(way, func(t *testing.T) {
				s := scene.New(t, &servers, shop.NewMySQL(t, server, "mysql", nil))
				s.Prove()
				s.InsertUnseen(1, "order.changed")
				server.Exec(t, "", "RESET BINARY LOGS AND GTIDS")
				if way == "--to earliest" {
					s.Insert(1)
				}
				stderr := s.Stops(4, "OT302", s.Stored().Source.File)
				s.TakeWay(stderr, way)
				s.Prove()
			})
		}
		t.Run("while events are parked", func(t *testing.T) { whatIsParkedOfALogThatWasReset(t, server) })
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
	s := scene.New(t, &servers, shop.NewMySQL(t, one, "mysql", nil))
	s.Prove()
	at := s.Stored().Source
	require.Empty(t, at.GTID)
	require.Equal(t, one.Scalar(t, "", "SELECT @@server_uuid"), at.ServerUUID)
	s.Insert(2)
	s.Prove()
	last := s.Sent[len(s.Sent)-1]

	r := s.Set(fmt.Sprintf("%s:%d", at.File, at.Pos))
	require.Equal(t, 0, r.Code, r.Stderr)
	s.Prove()
	require.Equal(t, 2, s.Times(last), "sent again from there")
	require.Equal(t, 1, s.Times(s.Sent[0]), "what lies before is not")

	s.DB = shop.NewMySQL(t, two, "mysql", nil)
	s.Configure("Source", s.DB.Source(""))
	s.InsertUnseen(1, "order.changed")
	stderr := s.Stops(4, "OT3020", at.ServerUUID, two.Scalar(t, "", "SELECT @@server_uuid"))
	s.TakeWay(stderr, "--to now")
	s.Prove()
}

// TestSetPosition: each form of --to, as positions that were stored before.
func TestSetPosition(t *testing.T) {
	// setting: three events; after the first its position is noted. again: how often each is there after setting.
	check := func(t *testing.T, db shop.Database, to func(first scene.Entry) string, again []int) {
		s := scene.New(t, &servers, db)
		s.Prove()
		first := s.Stored()
		s.Insert(1)
		s.Prove()
		r := s.Set(to(first))
		require.Equal(t, 0, r.Code, r.Stderr)
		require.Contains(t, r.Stdout, "pipeline orders begins at")
		s.Prove()
		for i, n := range again {
			require.Equal(t, n, s.Times(s.Sent[i]), "event %d", i)
		}
		require.Equal(t, 1, s.Times(s.Sent[len(s.Sent)-1]))
	}
	t.Run("postgres", func(t *testing.T) {
		db := func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.OldestPostgres()), nil)
		}
		t.Run("an LSN that was confirmed already is refused", func(t *testing.T) {
			s := scene.New(t, &servers, db(t))
			s.Prove()
			first := s.Stored()
			s.Insert(1)
			s.Prove()
			r := s.Set(first.Source.LSN)
			require.Equal(t, 2, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "the oldest position that it can send from")
			require.Contains(t, r.Stderr, "hint: --to slot")
			s.Prove()
		})
		t.Run("an LSN further on", func(t *testing.T) {
			s := scene.New(t, &servers, db(t))
			s.Prove()
			s.InsertUnseen(1, "order.changed")
			r := s.Set(servers.Postgres(t, harness.OldestPostgres()).Scalar(t, "postgres", "pg_current_wal_insert_lsn()"))
			require.Equal(t, 0, r.Code, r.Stderr)
			s.Prove()
		})
		t.Run("slot", func(t *testing.T) {
			check(t, db(t), func(scene.Entry) string { return "slot" }, []int{1, 1, 1})
		})
		t.Run("now", func(t *testing.T) {
			s := scene.New(t, &servers, db(t))
			s.Prove()
			s.InsertUnseen(1, "order.changed")
			r := s.Set("now")
			require.Equal(t, 0, r.Code, r.Stderr)
			s.Prove()
		})
	})
	t.Run("mysql", func(t *testing.T) {
		db := func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) }
		t.Run("a GTID set", func(t *testing.T) {
			check(t, db(t), func(first scene.Entry) string { return first.Source.GTID }, []int{1, 2, 2})
		})
		t.Run("FILE:POS", func(t *testing.T) {
			check(t, db(t), func(first scene.Entry) string { return fmt.Sprintf("%s:%d", first.Source.File, first.Source.Pos) }, []int{1, 2, 2})
		})
		t.Run("earliest", func(t *testing.T) {
			check(t, db(t), func(scene.Entry) string { return "earliest" }, []int{2, 2, 2})
		})
		t.Run("now", func(t *testing.T) {
			s := scene.New(t, &servers, db(t))
			s.Prove()
			s.InsertUnseen(1, "order.changed")
			r := s.Set("now")
			require.Equal(t, 0, r.Code, r.Stderr)
			s.Prove()
		})
	})
	t.Run("refused", func(t *testing.T) {
		eachKind(t, func(t *testing.T, db shop.Database) {
			s := scene.New(t, &servers, db)
			s.Prove()
			before := s.Stored()
			for to, code := range map[string]int{"yesterday": 2, "": 2, "after:nonsense": 2, "after:" + db.Kind() + "/x/0/1#7": 2} {
				r := s.Set(to)
				require.Equal(t, code, r.Code, "--to %q: %s", to, r.Stderr)
			}
			r := s.Outtail.Run(t, "checkpoint", "set", "-c", s.Outtail.Config, "--pipeline", "nobody", "--to", "now", "--reason", "test")
			require.Equal(t, 2, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "orders", "it lists the names that there are")
			require.Equal(t, before, s.Stored(), "nothing was changed")
		})
	})
}

// TestHaltedEvent: an event that cannot be delivered stops the pipeline in its place; the printed command leaves out that
// one and no other.
func TestHaltedEvent(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := scene.New(t, &servers, db)
		s.UseTopic("t." + harness.Unique())
		s.Kafka.CreateTopic(t, s.Topic, 1, map[string]string{"max.message.bytes": "4000"})
		s.Configure("Match", "match: { event_type: order.* }, ")
		s.Prove()
		insertMixed(s, "order.changed", "poison.made", "order.changed")
		s.Insert(1)
		stderr := s.Stops(1, "OT6001", "OT6101", `poison.made`)
		s.Stops(1, "OT6001") // again: nothing is left out by a restart
		way := scene.PrintedCommand.FindStringSubmatch(stderr)
		require.NotEmpty(t, way, stderr)
		_, place, _ := strings.Cut(strings.ReplaceAll(way[1], "'", ""), "--to ")
		require.Regexp(t, "^after:"+db.Kind()+"/.*#1$", place)
		s.TakeWay(stderr, place)
		s.Prove()

		// One that only the broker refuses: told behind what was acked, with what to change there.
		insertMixed(s, "order.changed", "order.too_large", "order.changed")
		stderr = s.Stops(1, "OT6001", "OT5009", "--add-config max.message.bytes=", "#1")
		way = scene.PrintedCommand.FindStringSubmatch(stderr)
		require.NotEmpty(t, way, stderr)
		_, place, _ = strings.Cut(strings.ReplaceAll(way[1], "'", ""), "--to ")
		s.TakeWay(stderr, place)
		s.Prove()
	})
}

// insertMixed commits events of these types in one transaction; those of type order.changed are expected to arrive.
func insertMixed(s *scene.Scene, types ...string) {
	s.T.Helper()
	tx, err := s.DB.Begin(s.T.Context())
	require.NoError(s.T, err)
	for _, typ := range types {
		id, payload := scene.NewUUID(), "{}"
		if typ == "order.too_large" {
			payload = `{"much": "` + strings.Repeat("x", 5000) + `"}`
		}
		require.NoError(s.T, tx.Exec(s.T.Context(), scene.InsertEvent, id, typ, payload))
		if typ == "order.changed" {
			s.Sent = append(s.Sent, id)
		}
	}
	require.NoError(s.T, tx.Commit(s.T.Context()))
}

// TestEmptiedDataDir: on Postgres the slot remembers; on MySQL nothing does, and one line says what that means.
func TestEmptiedDataDir(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := scene.New(t, &servers, db)
		s.Prove()
		require.NoError(t, os.RemoveAll(s.Outtail.DataDir))
		if db.Kind() == "postgres" {
			s.Insert(3)
			s.Prove()
			return
		}
		s.InsertUnseen(3, "order.changed")
		p := s.Start()
		s.Insert(1)
		s.Arrived(p)
		s.Stop(p)
		var warnings []string
		for line := range strings.Lines(p.Stderr()) {
			if strings.Contains(line, "level=WARN") && !strings.Contains(line, "XA_RECOVER_ADMIN") { // which the user was not given
				warnings = append(warnings, line)
			}
		}
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "nothing before this position is sent")
		require.Contains(t, warnings[0], "start=now")
	})
}
