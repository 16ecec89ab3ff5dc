package integration

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// TestCheckpointShow: the JSON is as outside tools rely on it, to the letter, asked of the running process and read from
// its file.
func TestCheckpointShow(t *testing.T) {
	const stamp = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`
	sources := map[string]string{
		"postgres": `\{"kind":"postgres","system_id":"\d+","timeline":1,"slot":"outtail_t_[0-9a-f]+","lsn":"[0-9A-F]+/[0-9A-F]+"\}`,
		"mysql":    `\{"kind":"mysql","server_uuid":"[0-9a-f-]{36}","gtid":"[0-9a-f-]{36}:[0-9:,-]+","file":"binlog\.\d{6}","pos":\d+\}`,
	}
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := scene.New(t, &servers, db)
		shape := regexp.MustCompile(`^\{"version":1,"pipelines":\[\{"pipeline":"orders","saved_at":` + stamp + `,"outtail":"v[^"]+","source":` + sources[db.Kind()] +
			`,"prefix":null,"sink":\{"kind":"kafka","cluster_id":"[A-Za-z0-9_-]{22}"\},"events":3,"parked":0\}\]\}$`)
		said := ""
		show := func() string {
			r := s.Outtail.Run(t, "checkpoint", "show", "-c", s.Outtail.Config, "--json")
			require.Equal(t, 0, r.Code, r.Stderr)
			said = r.Stderr
			var b bytes.Buffer
			require.NoError(t, json.Compact(&b, []byte(r.Stdout)))
			return b.String()
		}
		table := func() string {
			r := s.Outtail.Run(t, "checkpoint", "show", "-c", s.Outtail.Config)
			require.Equal(t, 0, r.Code, r.Stderr)
			return r.Stdout
		}
		require.Equal(t, `{"version":1,"pipelines":[]}`, show(), "nothing is stored yet")
		require.Contains(t, said, "there is no outtail.db in "+s.Outtail.DataDir)
		require.Regexp(t, `(?m)^orders +never `, table())

		p := s.Start()
		s.Insert(3)
		s.Arrived(p)
		p.Until(t, "the position behind the events", func() bool { return strings.Contains(show(), `"events":3,`) })
		require.Regexp(t, shape, show(), "running")
		require.Empty(t, said)
		require.Regexp(t, `(?m)^orders .* 3 +0 +kafka `, table())
		s.Stop(p)
		require.Regexp(t, shape, show(), "stopped")
		require.Regexp(t, `(?m)^orders .* 3 +0 +kafka `, table())
	})
}
