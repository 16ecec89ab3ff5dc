package binlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

func TestB154EachPrivilegeThatLacksIsNamedWithItsGrant(t *testing.T) {
	eachServer(t, func(t *testing.T, b *bench) {
		client := "REPLICATION CLIENT"
		if b.kind == event.MariaDB {
			client = "BINLOG MONITOR"
		}
		table := fmt.Sprintf("`%s`.`outbox`", b.db)
		replication, status, read := "REPLICATION SLAVE ON *.*", client+" ON *.*", "SELECT ON "+table
		for name, c := range map[string]struct {
			grants []string
			lacks  string // in the text
			hint   string // "" for none: it works
		}{
			"what is documented":           {[]string{replication, status, read}, "", ""},
			"REPLICATION CLIENT as it was": {[]string{replication, "REPLICATION CLIENT ON *.*", read}, "", ""},
			"SELECT on the schema":         {[]string{replication, status, "SELECT ON `" + b.db + "`.*"}, "", ""},
			"nothing":                      {nil, "REPLICATION SLAVE", "GRANT REPLICATION SLAVE, " + client + " ON *.* TO"},
			"no REPLICATION SLAVE":         {[]string{status, read}, "REPLICATION SLAVE", "GRANT REPLICATION SLAVE"},
			"no REPLICATION CLIENT":        {[]string{replication, read}, client, client + " ON *.* TO"},
			"no SELECT on the table":       {[]string{replication, status}, "SELECT", "GRANT SELECT ON " + table + " TO"},
			"SELECT on some columns only":  {[]string{replication, status, "SELECT (id, payload) ON " + table}, "SELECT", "GRANT SELECT ON " + table + " TO"},
			"SELECT on every column":       {[]string{replication, status, "SELECT (id, note, payload) ON " + table}, "", ""},
		} {
			t.Run(name, func(t *testing.T) {
				o := b.options(t, "outbox")
				o.User, o.Password = "p_"+harness.Unique(), "x"
				b.run(t, fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'x'", o.User))
				for _, g := range c.grants {
					b.run(t, fmt.Sprintf("GRANT %s TO '%s'@'%%'", g, o.User))
				}
				if c.hint == "" {
					b.reads(t, o)
					return
				}
				_, err := tryOpen(t, o, event.Checkpoint{})
				f := requireFault(t, err, "OT3008", event.Environment)
				require.True(t, f.Immediate)
				require.Contains(t, f.Text, c.lacks)
				require.Contains(t, f.Hint, c.hint)
				require.Contains(t, f.Hint, o.User)
			})
		}
		t.Run("by a role", func(t *testing.T) {
			o := b.options(t, "outbox")
			role := "r_" + harness.Unique()
			o.User, o.Password = "p_"+harness.Unique(), "x"
			active := fmt.Sprintf("SET DEFAULT ROLE '%s' TO '%s'@'%%'", role, o.User)
			if b.kind == event.MariaDB {
				active = fmt.Sprintf("SET DEFAULT ROLE '%s' FOR '%s'@'%%'", role, o.User)
			}
			b.run(t, fmt.Sprintf("CREATE ROLE '%s'", role), fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'x'", o.User))
			for _, g := range []string{replication, status, read} {
				b.run(t, fmt.Sprintf("GRANT %s TO '%s'", g, role))
			}
			if b.kind == event.MariaDB {
				b.run(t, fmt.Sprintf("GRANT '%s' TO '%s'@'%%'", role, o.User), active)
			} else {
				b.run(t, fmt.Sprintf("GRANT '%s'@'%%' TO '%s'@'%%'", role, o.User), active)
			}
			b.reads(t, o)
		})
	})
}
