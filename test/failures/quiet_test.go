package failures

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

const (
	mappedKey = "{ id: id, aggregate_type: aggregate_type, aggregate_id: aggregate_id, event_type: event_type, key: message_key, payload: payload, headers: headers }"
	insertAll = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, message_key, payload, headers) VALUES (?, 'order', ?, ?, ?, ?, ?)"
)

// TestQuietAboutWhatFails: markers in payloads, keys, headers and passwords show nowhere but in the broker and in the two stores,
// whatever fails, whatever the policy, and whatever a person asks for, at the most talkative log level (I10).
func TestQuietAboutWhatFails(t *testing.T) {
	for _, source := range sources {
		t.Run(source, func(t *testing.T) {
			t.Parallel() // it mostly waits
			db := openShop(t, source)
			db.Exec(t, "ALTER TABLE outbox ADD COLUMN message_key varchar(200)")
			c := newCell(t, db, steady(t), "park")
			marker := "MARKER" + harness.Unique()
			var watched strings.Builder
			watch := func() {
				for _, path := range []string{"/metrics", "/readyz", "/healthz", "/"} {
					_, body := c.outtail.Get(t, path)
					watched.WriteString(body)
				}
			}
			n := 0
			// insert commits one event of an aggregate of its own.
			insert := func(eventType, headers string, more int) (id string) {
				n++
				id = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
				tx, err := db.Begin(t.Context())
				require.NoError(t, err)
				require.NoError(t, tx.Exec(t.Context(), insertAll, id, fmt.Sprint("a-", n), eventType, marker+fmt.Sprint(n),
					fmt.Sprintf(`{"card": "%s%s"}`, strings.Repeat("x", more), marker), headers))
				require.NoError(t, tx.Commit(t.Context()))
				return id
			}
			good := fmt.Sprintf(`{"%s": "%s"}`, marker, marker)
			arrived := 0
			flows := func() {
				insert("order.paid", good, 0)
				arrived++
				c.process.Until(t, "a good event", func() bool { return len(c.kafka.Records(t, c.topic)) >= arrived })
			}
			spoil := func() (ids []string) {
				return []string{insert("payment.made", good, 0), insert("order.paid", `"`+marker+`"`, 0), insert("order.paid", good, 6000)}
			}

			c.user, c.password = "u"+harness.Unique(), marker+"password"
			c.kafka.SetPassword(t, c.user, c.password)
			c.kafka.Grant(t, c.user, c.topic)
			c.configure("Brokers", c.kafka.Proxy.Addr(), "Sink", c.sasl(c.password), "Level", "debug", "Match", someRouted, "Columns", mappedKey)
			c.kafka.AlterTopic(t, c.topic, "max.message.bytes", "5000")
			run := func(exit int, args ...string) {
				t.Helper()
				r := c.outtail.Run(t, append(args, "-c", c.outtail.Config)...)
				require.Equal(t, exit, r.Code, "%v: %s%s", args, r.Stdout, r.Stderr)
			}

			for _, policy := range []string{"park", "dlq", "skip"} {
				c.configure("Policy", policy)
				c.start()
				flows()
				ids := spoil()
				if policy == "skip" {
					c.process.Until(t, "all skipped", func() bool { return c.outtail.Metric(t, "outtail_events_filtered_total", `reason="skipped"`) == 3 })
					watch()
					c.stop()
					continue
				}
				c.process.Until(t, "all parked", func() bool { return c.outtail.Metric(t, "outtail_parked_events") == 3 })
				watch()
				edited := filepath.Join(t.TempDir(), "payload.json")
				require.NoError(t, os.WriteFile(edited, []byte(`{"card": "`+marker+`"}`), 0o600))
				run(0, "dlq", "list")
				run(0, "dlq", "list", "--json")
				run(0, "dlq", "show", "--id", ids[0])
				run(2, "dlq", "show", "--id", "none")
				run(2, "dlq", "replay", "--reason", "nothing picked")
				run(1, "dlq", "replay", "--all", "--reason", "not mended")
				run(0, "dlq", "replay", "--id", ids[2], "--edit", edited, "--reason", "shortened")
				arrived++
				run(0, "dlq", "skip", "--all", "--reason", "enough")
				c.stop()
				run(2, "dlq", "replay", "--all", "--reason", "nobody runs")
			}
			c.configure("Policy", "halt")
			c.start()
			spoil()
			require.Equal(t, 1, c.process.Wait(t).Code)

			// What keeps the sink from working.
			c.configure("Policy", "skip")
			c.start()
			for _, wrong := range []struct {
				code         string
				happen, mend func()
			}{
				{"OT5005", func() { c.kafka.Revoke(t, c.user, c.topic) }, func() { c.kafka.Grant(t, c.user, c.topic) }},
				{"OT5003", func() { c.kafka.SetPassword(t, c.user, marker+"another") }, func() { c.kafka.SetPassword(t, c.user, c.password) }},
			} {
				wrong.happen()
				c.process.Until(t, "a reason with code "+wrong.code, func() bool {
					if c.outtail.Metric(t, "outtail_inflight_events") == 0 { // the last one still went through
						insert("order.paid", good, 0)
						arrived++
					}
					return c.said(wrong.code)
				})
				watch()
				run(0, "checkpoint", "show", "--json")
				wrong.mend()
				c.process.WaitReady(t)
			}
			flows()
			run(0, "audit", "--json")
			run(0, "validate")
			run(0, "checkpoint", "show")
			c.outtail.Run(t, "doctor", "-c", c.outtail.Config)
			c.stop()

			seen := map[string]string{"the admin listener": watched.String()}
			dir := filepath.Dir(c.outtail.Config)
			require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				name := d.Name()
				if err != nil || d.IsDir() || path == c.outtail.Config || d.Type()&fs.ModeSocket != 0 || name == "outtail.db" || name == "parked.db" {
					return err
				}
				b, err := os.ReadFile(path)
				seen[path] = string(b)
				return err
			}))
			require.Greater(t, len(seen), 40, "stdout and stderr of every command")
			secrets := append(forms(marker), passwords.FindStringSubmatch(db.Source(""))[1])
			for where, text := range seen {
				for _, secret := range secrets {
					if i := strings.Index(text, secret); i >= 0 {
						t.Errorf("%s tells %s: …%s…", where, secret, text[max(0, i-300):min(len(text), i+100)])
					}
				}
			}
			for _, r := range c.kafka.Records(t, c.topic) {
				require.Contains(t, string(r.Value), marker)
			}
		})
	}
}

var passwords = regexp.MustCompile(`password: ([^,]+),`)

// forms are how a text may be written: as it is, in hex, and in base64 wherever it begins.
func forms(text string) []string {
	all := []string{text, hex.EncodeToString([]byte(text))}
	for shift := range 3 {
		b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + text))
		all = append(all, b[4:len(b)-4]) // the ends depend on what stands beside
	}
	return all
}
