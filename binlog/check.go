package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

// check looks at what waiting cannot mend (contract: exit 3 at once, with the SQL).
func (s *Source) check(ctx context.Context, c *conn) error {
	sv := s.server
	lacks := func(code, text, hint string) error {
		f := s.fault(code, event.Environment, "check the server", text, hint)
		f.Immediate = true
		return f
	}
	if sv.maria != (s.o.Kind == event.MariaDB) {
		kind := event.MySQL
		if sv.maria {
			kind = event.MariaDB
		}
		return lacks(codeFlavour, "the server is "+kind+" ("+sv.version+")", "write source: "+kind+": instead of "+s.o.Kind+":")
	}
	if !sv.logBin {
		hint := "remove skip-log-bin / disable-log-bin from the server's configuration and restart it"
		if sv.maria {
			hint = "add log_bin and server_id to the server's configuration and restart it"
		}
		return lacks(codeLogBin, "the server writes no binary log (log_bin is OFF)", hint)
	}
	if !strings.EqualFold(sv.format, "ROW") {
		return lacks(codeFormat, "binlog_format is "+sv.format, "SET GLOBAL binlog_format = 'ROW';\n(and in the configuration; sessions that are open keep the old one)")
	}
	if sv.image != "" && !strings.EqualFold(sv.image, "FULL") {
		return lacks(codeImage, "binlog_row_image is "+sv.image, "SET GLOBAL binlog_row_image = 'FULL';\n(and in the configuration; sessions that are open keep the old one)")
	}
	byColumn, err := s.checkGrants(ctx, c)
	if err != nil {
		return err
	}
	for i := range s.tables {
		t := &s.tables[i]
		d, err := s.define(ctx, c, t)
		if err != nil {
			return err
		}
		if len(d) == 0 {
			// A table that exists and may not be selected looks the same in information_schema.
			if _, err := c.query(ctx, "SELECT 1 FROM "+backtick(t.schema)+"."+backtick(t.table)+" LIMIT 0"); err != nil {
				var me *mysql.MyError
				if errors.As(err, &me) && me.Code != mysql.ER_NO_SUCH_TABLE && me.Code != mysql.ER_BAD_DB_ERROR {
					// To a user with few privileges the server says the same of a table that does not exist.
					f := s.queryFault("look at table "+t.name, err)
					f.Hint += "\nor correct tables: in the configuration, if there is no such table"
					return f
				}
			}
			hint := s.createTable(t) + "\nor correct tables: in the configuration"
			if like, err := s.otherCase(ctx, c, t); err == nil && like != "" {
				hint = "correct tables: in the configuration: the server has " + like + ", and regards case in names (lower_case_table_names = 0). Or create it:\n" + s.createTable(t)
			}
			return lacks(codeTable, "table "+t.name+" does not exist", hint)
		}
		if byColumn {
			// Who may see some columns only gets a definition with holes, and would decode rows by it.
			var me *mysql.MyError
			if _, err := c.query(ctx, "SELECT * FROM "+backtick(t.schema)+"."+backtick(t.table)+" LIMIT 0"); errors.As(err, &me) {
				return s.queryFault("look at table "+t.name, err)
			}
		}
		if period := d.byTransaction(); len(period) > 0 {
			drop := ""
			for _, c := range period {
				drop += ", DROP COLUMN " + backtick(c)
			}
			return lacks(codeFormat, "table "+t.name+" is versioned by transaction (BIGINT ROW START): MariaDB logs what is inserted into it as statements, whatever binlog_format is",
				"SET SESSION system_versioning_alter_history = KEEP;\nALTER TABLE "+backtick(t.schema)+"."+backtick(t.table)+" DROP SYSTEM VERSIONING"+drop+";\n(ALTER TABLE … ADD SYSTEM VERSIONING; versions it by time)")
		}
		for _, c := range d {
			if strings.Contains(c.Type, ") /* mariadb-5.3 */") {
				return lacks(codeColumn, "column "+c.Name+" of table "+t.name+" has fractions of seconds in the format of MariaDB 5.3, which is not read",
					"ALTER TABLE "+backtick(t.schema)+"."+backtick(t.table)+" FORCE;\nwith mysql56_temporal_format = ON, which is the default")
			}
		}
		names := make([]column, len(d))
		for i := range d {
			names[i].name = d[i].Name
		}
		for r := range event.RoleCount {
			m := s.o.Columns[r]
			if m.Column == "" || m.IsConst {
				continue
			}
			i := findColumn(names, m.Column)
			if i < 0 {
				return lacks(codeColumn, fmt.Sprintf("table %s has no column %s (role %s)", t.name, m.Column, r), "correct columns in the configuration; the table has: "+columnNames(d))
			}
			if cs := d[i].Charset; cs != "" && !readable(cs) {
				return lacks(codeColumn, fmt.Sprintf("column %s of table %s (role %s) has character set %s, which this version cannot read", d[i].Name, t.name, r, cs),
					fmt.Sprintf("give it another one: ALTER TABLE %s.%s MODIFY %s … CHARACTER SET utf8mb4;", backtick(t.schema), backtick(t.table), backtick(d[i].Name)))
			}
		}
	}
	return nil
}

// otherCase finds a table whose name differs by nothing but case.
func (s *Source) otherCase(ctx context.Context, c *conn, t *table) (string, error) {
	r, err := c.query(ctx, fmt.Sprintf("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE LOWER(TABLE_SCHEMA) = LOWER(%s) AND LOWER(TABLE_NAME) = LOWER(%s) LIMIT 1",
		quote(t.schema), quote(t.table)))
	if err != nil || r.RowNumber() == 0 {
		return "", err
	}
	schema, _ := r.GetString(0, 0)
	name, _ := r.GetString(0, 1)
	return schema + "." + name, nil
}

// createTable is the SQL of a table with the columns that the configuration reads.
func (s *Source) createTable(t *table) string {
	var columns []string
	seen := map[string]bool{}
	for r := range event.RoleCount {
		m := s.o.Columns[r]
		if m.Column == "" || m.IsConst || seen[strings.ToLower(m.Column)] {
			continue
		}
		seen[strings.ToLower(m.Column)] = true
		kind := "VARCHAR(255)"
		switch r {
		case event.ID:
			kind = "CHAR(36) PRIMARY KEY"
		case event.AggregateType, event.AggregateID, event.EventType:
			kind = "VARCHAR(255) NOT NULL"
		case event.Payload, event.Headers:
			kind = "JSON"
		case event.OccurredAt:
			kind = "TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
		}
		columns = append(columns, backtick(m.Column)+" "+kind)
	}
	return "CREATE TABLE " + backtick(t.schema) + "." + backtick(t.table) + " (" + strings.Join(columns, ", ") + ");"
}

func columnNames(d definition) string {
	d = d[:d.shown()]
	names := make([]string, len(d))
	for i := range d {
		names[i] = d[i].Name
	}
	return strings.Join(names, ", ")
}

// checkGrants reads the user's global privileges. What roles give shows too, as far as they are active.
// byColumn says that some privilege is one on columns.
func (s *Source) checkGrants(ctx context.Context, c *conn) (byColumn bool, err error) {
	r, err := c.query(ctx, "SHOW GRANTS")
	if err != nil {
		return false, s.queryFault("read the user's privileges", err)
	}
	var all strings.Builder
	roles := false
	for i := range r.RowNumber() {
		line, _ := r.GetString(i, 0)
		up := strings.ToUpper(line)
		if head, _, ok := strings.Cut(up, " ON "); ok && strings.Contains(head, "(") {
			byColumn = true
		}
		if strings.Contains(up, " ON *.* TO ") {
			head, _, _ := strings.Cut(up, " ON *.* TO ")
			all.WriteString(head + ",")
		} else if !strings.Contains(up, " ON ") {
			roles = true
		}
	}
	have := all.String()
	if strings.Contains(have, "ALL PRIVILEGES") {
		return byColumn, nil
	}
	slave := strings.Contains(have, "REPLICATION SLAVE") || strings.Contains(have, "REPLICATION REPLICA")
	client := strings.Contains(have, "REPLICATION CLIENT") || strings.Contains(have, "BINLOG MONITOR") || strings.Contains(have, "SUPER")
	if slave && client || roles {
		return byColumn, nil // with roles the server itself says no where it must
	}
	missing := "REPLICATION SLAVE"
	if slave {
		missing = "REPLICATION CLIENT"
		if s.o.Kind == event.MariaDB {
			missing = "BINLOG MONITOR"
		}
	}
	return byColumn, s.privilegeFault("check the server", missing)
}
