package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// TestQuietAboutData: no payload, scene.Header of a row or secret shows anywhere but in the broker, at the most talkative log
// level, while all is well and while it is not (I10).
func TestQuietAboutData(t *testing.T) {
	for kind, newDB := range map[string]func(t *testing.T) shop.Database{
		"postgres": func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
		},
		"mysql": func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) },
	} {
		marker := "MARKER" + harness.Unique()
		insert := func(s *scene.Scene, eventType, headers string) {
			tx, err := s.DB.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, tx.Exec(t.Context(), "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, 'order', 'order-1', ?, ?, ?)",
				scene.NewUUID(), eventType, fmt.Sprintf(`{"card": "%s"}`, marker), headers))
			require.NoError(t, tx.Commit(t.Context()))
		}
		good := fmt.Sprintf(`{"token": "%s"}`, marker)
		for _, c := range []struct {
			name string
			run  func(s *scene.Scene) (watched string, code int) // what the admin listener told, and how the process ended
			code int
		}{
			{"all is well", func(s *scene.Scene) (string, int) {
				p := s.Start()
				insert(s, "order.changed", good)
				records := s.Kafka.Await(t, 1, s.Topic)
				require.Contains(t, string(records[0].Value), marker)
				seen := watch(s)
				return seen, p.Terminate(t).Code
			}, 0},
			{"no route", func(s *scene.Scene) (string, int) {
				p := s.Start()
				insert(s, "poison.made", good)
				return "", p.Wait(t).Code
			}, 1},
			{"headers that are no object", func(s *scene.Scene) (string, int) {
				p := s.Start()
				insert(s, "order.changed", `"`+marker+`"`)
				return "", p.Wait(t).Code
			}, 1},
			{"larger than the topic allows", func(s *scene.Scene) (string, int) {
				s.UseTopic("t." + harness.Unique())
				s.Kafka.CreateTopic(t, s.Topic, 1, map[string]string{"max.message.bytes": "200"})
				s.Configure()
				p := s.Start()
				insert(s, "order.changed", good)
				insert(s, "order.changed", fmt.Sprintf(`{"token": "%s"}`, strings.Repeat(marker, 40)))
				return "", p.Wait(t).Code
			}, 1},
			{"topic missing", func(s *scene.Scene) (string, int) {
				s.UseTopic("t." + harness.Unique())
				s.Configure()
				p := s.Start()
				insert(s, "order.changed", good)
				s.Says(p, "OT5004")
				seen := watch(s)
				return seen, p.Kill(t).Code
			}, -1},
			{"the broker refuses a password", func(s *scene.Scene) (string, int) {
				s.Configure("Sink", ", sasl: { mechanism: plain, user: outtail, password: "+marker+" }")
				p := s.Outtail.Start(t)
				p.WaitStatus(t, "/readyz", 503)
				p.Until(t, "what is wrong with the broker", func() bool { return strings.Contains(p.Stderr(), "code=OT500") })
				seen := watch(s)
				return seen, p.Kill(t).Code
			}, -1},
			{"the server refuses a password", func(s *scene.Scene) (string, int) {
				s.Configure("Source", s.Source("password", marker), "StartTimeout", "1s")
				return "", s.Outtail.Start(t).Wait(t).Code
			}, 3},
			{"a URL that nobody answers", func(s *scene.Scene) (string, int) {
				port, err := harness.FreePort()
				require.NoError(t, err)
				s.Configure("StartTimeout", "1s", "Source", fmt.Sprintf("%s: { url: '%s://outtail:%s@127.0.0.1:%d/shop', tables: [shop.outbox], start: now }",
					kind, kind, marker, port))
				return "", s.Outtail.Start(t).Wait(t).Code
			}, 3},
		} {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				s := scene.New(t, &servers, newDB(t)) // of its own: a slot that stands before a poisonous event would send it to the next case
				password := between(s.DB.Source(""), "password: ", ",")
				s.Configure("Level", "debug", "Match", "match: { event_type: order.* }, ", "StartTimeout", "60s")
				watched, code := c.run(s)
				require.Equal(t, c.code, code)
				seen := map[string]string{"the admin listener": watched}
				for _, args := range [][]string{{"checkpoint", "show"}, {"checkpoint", "show", "--json"}, {"validate"}, {"validate", "--json"}} {
					r := s.Outtail.Run(t, append(args, "-c", s.Outtail.Config)...)
					require.Equal(t, 0, r.Code, r.Stderr)
				}
				// Everything that the processes wrote: data_dir, and stdout and stderr beside it.
				require.NoError(t, filepath.WalkDir(filepath.Dir(s.Outtail.Config), func(path string, d fs.DirEntry, err error) error {
					if err != nil || d.IsDir() || path == s.Outtail.Config || d.Type()&fs.ModeSocket != 0 {
						return err
					}
					b, err := os.ReadFile(path)
					seen[path] = string(b)
					return err
				}))
				require.Greater(t, len(seen), 5)
				for where, text := range seen {
					for _, secret := range []string{marker, password} {
						if i := strings.Index(text, secret); i >= 0 {
							t.Errorf("%s tells %s: …%s…", where, secret, text[max(0, i-300):min(len(text), i+100)])
						}
					}
				}
			})
		}
	}
}

// watch is what the admin listener tells now.
func watch(s *scene.Scene) string {
	var b strings.Builder
	for _, path := range []string{"/metrics", "/readyz", "/healthz", "/"} {
		_, body := s.Outtail.Get(s.T, path)
		b.WriteString(body)
	}
	require.Contains(s.T, b.String(), "outtail_build_info")
	return b.String()
}
