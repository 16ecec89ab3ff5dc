package doctor

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

// myAsk asks over one connection.
type myAsk struct {
	*client.Conn
}

// unreachable is what keeps a start from the server, as it would say it.
func (o *MySQL) unreachable(err error) *Finding {
	f := &Finding{Severity: Error, Code: codeReach, Found: plainCause(err), Why: outside(event.AsFault(err), o.StartTimeout), Repair: "check host and port, and that the server runs and listens there"}
	if fault := event.AsFault(err); fault != nil {
		f.Found, f.Repair = fault.Text, fault.Hint
		if fault.Err != nil {
			f.Found += ": " + plainCause(fault.Err)
		}
	}
	return f
}

// plainCause strips the stack that the client library wraps around errors.
func plainCause(err error) string {
	type causer interface{ Cause() error }
	for {
		c, ok := err.(causer)
		if !ok || c.Cause() == nil || c.Cause() == err { //nolint:errorlint // whether it is its own cause, not whether it wraps it
			return err.Error()
		}
		err = c.Cause()
	}
}

// denied reports whether the server refused for want of a privilege.
func denied(err error) bool {
	var me *mysql.MyError
	if !errors.As(err, &me) {
		return false
	}
	switch me.Code {
	case mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, mysql.ER_ACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR, mysql.ER_DBACCESS_DENIED_ERROR, mysql.ER_COLUMNACCESS_DENIED_ERROR, 1401: // XAER_RMERR: XA RECOVER without its privilege
		return true
	}
	return false
}

// collectMySQL asks the server; the second answer is why nothing could be asked.
func collectMySQL(ctx context.Context, o *MySQL) (*myFacts, *Finding) {
	conn, encrypted, err := o.Connect(ctx)
	if err != nil {
		return nil, o.unreachable(err)
	}
	defer func() { _ = conn.Close() }()
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(time.Minute)
	}
	_ = conn.SetDeadline(until) // for all questions
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	a, f := myAsk{conn}, &myFacts{TLS: encrypted, XA: -1, Vars: map[string]string{}}
	for _, step := range []struct {
		what string
		ask  func(context.Context, myAsk, *MySQL, *myFacts) error
	}{
		{"the server's variables", myVariables},
		{"privileges", myPrivileges},
		{"the binary logs", myLogs},
		{"the stored position", myStored},
		{"replicas", myReplicas},
		{"tables", myTables},
		{"what a start would refuse", myCheck},
		{"what writes to them", myWriters},
		{"prepared XA transactions", myXA},
	} {
		if err := step.ask(ctx, a, o, f); err != nil {
			return nil, &Finding{Severity: Error, Code: codeQuery, Found: "the server does not tell about " + step.what + ": " + plainCause(err), Why: "what follows it could not be looked at either",
				Repair: "look again; if it persists, the server's log tells more"}
		}
	}
	return f, nil
}

// rows gives a result as text; NULL reads as "".
func (a myAsk) rows(q string) ([][]string, []string, error) {
	r, err := a.Execute(q)
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, len(r.Fields))
	for i, f := range r.Fields {
		names[i] = strings.ToLower(string(f.Name))
	}
	out := make([][]string, r.RowNumber())
	for i := range out {
		out[i] = make([]string, r.ColumnNumber())
		for j := range out[i] {
			v, _ := r.GetString(i, j)
			out[i][j] = strings.Clone(v) // it lies in the connection's buffer
		}
	}
	return out, names, nil
}

// whole reads a number that the server printed.
func whole(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// named gives rows as maps of lower-case column names.
func (a myAsk) named(q string) ([]map[string]string, error) {
	rows, names, err := a.rows(q)
	if err != nil {
		return nil, err
	}
	out := make([]map[string]string, len(rows))
	for i, r := range rows {
		out[i] = map[string]string{}
		for j, v := range r {
			out[i][names[j]] = v
		}
	}
	return out, nil
}

// either asks in the words of newer servers first.
func (a myAsk) either(newer, older string) ([]map[string]string, error) {
	out, err := a.named(newer)
	if err != nil && !denied(err) {
		out, err = a.named(older)
	}
	return out, err
}

func myVariables(_ context.Context, a myAsk, _ *MySQL, f *myFacts) error {
	if _, err := a.Execute("SET time_zone = '+00:00', sql_mode = ''"); err != nil {
		return err
	}
	rows, _, err := a.rows("SHOW GLOBAL VARIABLES")
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Vars[strings.ToLower(r[0])] = r[1]
	}
	f.Version = f.Vars["version"]
	f.Maria = strings.Contains(strings.ToLower(f.Version), "mariadb")
	rows, _, err = a.rows("SELECT CURRENT_USER()")
	if err == nil {
		f.User = rows[0][0]
	}
	return err
}

// myPrivileges finds what is missing by asking for what needs it, since roles do not show in SHOW GRANTS; what has no
// question is read from SHOW GRANTS.
func myPrivileges(_ context.Context, a myAsk, _ *MySQL, f *myFacts) error {
	rows, _, err := a.rows("SHOW GRANTS")
	if err != nil {
		return err
	}
	global, roles := "", false
	for _, r := range rows {
		up := strings.ToUpper(r[0])
		if head, _, ok := strings.Cut(up, " ON *.* TO "); ok {
			global += head + ","
		} else if !strings.Contains(up, " ON ") {
			roles = true
		}
	}
	all := strings.Contains(global, "ALL PRIVILEGES") || strings.Contains(global, "SUPER")
	if !f.Maria {
		// SHOW REPLICAS needs the very privilege that a dump needs.
		if _, err := a.either("SHOW REPLICAS", "SHOW SLAVE HOSTS"); denied(err) {
			f.Missing = append(f.Missing, "REPLICATION SLAVE")
		}
	} else if !all && !roles && !strings.Contains(global, "REPLICATION SLAVE") && !strings.Contains(global, "REPLICATION REPLICA") {
		f.Missing = append(f.Missing, "REPLICATION SLAVE")
	}
	client := "REPLICATION CLIENT"
	if f.Maria {
		client = "BINLOG MONITOR"
	}
	if _, _, err := a.rows("SHOW BINARY LOGS"); denied(err) {
		f.Missing = append(f.Missing, client)
	}
	return nil
}

func myLogs(_ context.Context, a myAsk, _ *MySQL, f *myFacts) error {
	if f.Vars["log_bin"] != "ON" {
		return nil
	}
	rows, _, err := a.rows("SHOW BINARY LOGS")
	if denied(err) {
		return nil // told as a missing privilege
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Files = append(f.Files, myFile{r[0], whole(r[1])})
	}
	status, err := a.either("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
	if err != nil || len(status) == 0 {
		return err
	}
	f.EndFile, f.DoDB, f.IgnoreDB = status[0]["file"], status[0]["binlog_do_db"], status[0]["binlog_ignore_db"]
	f.EndPos = whole(status[0]["position"])
	return nil
}

// myStored reads the stored position, and asks whether the server can serve what follows it.
func myStored(ctx context.Context, _ myAsk, o *MySQL, f *myFacts) error {
	if o.Stored != nil {
		f.Stored, f.StoredErr = o.Stored(ctx)
	}
	if o.Resume != nil && !f.Stored.Position.IsZero() && f.Stored.Position.Kind == o.Kind && f.Vars["log_bin"] == "ON" && len(f.Missing) == 0 {
		f.Resume = o.Resume(ctx, f.Stored)
		if o.Changes != nil && f.Resume == nil {
			f.Changes, f.ChangeErr = o.Changes(ctx, f.Stored)
		}
	}
	return nil
}

func myReplicas(_ context.Context, a myAsk, _ *MySQL, f *myFacts) error {
	needs := "REPLICATION SLAVE"
	if f.Maria {
		needs = "REPLICATION MASTER ADMIN"
	}
	rows, err := a.either("SHOW REPLICAS", "SHOW SLAVE HOSTS")
	switch {
	case denied(err):
		if f.Maria {
			f.Hidden = append(f.Hidden, hidden{"other replicas and their server ids", needs, "GRANT " + needs + " ON *.* TO " + f.account() + ";"})
		}
	case err != nil:
		return err
	}
	for _, r := range rows {
		uuid := r["replica_uuid"]
		if uuid == "" {
			uuid = r["slave_uuid"]
		}
		f.Replicas = append(f.Replicas, myReplica{uint32(whole(r["server_id"])), strings.ToLower(uuid), r["host"]})
	}
	of, err := a.either("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
	switch {
	case denied(err):
		if f.Maria {
			f.Hidden = append(f.Hidden, hidden{"whether the server is itself a replica", "REPLICA MONITOR", "GRANT REPLICA MONITOR ON *.* TO " + f.account() + ";"})
		}
		return nil
	case err != nil:
		return err
	}
	if len(of) > 0 {
		r := of[0]
		f.ReplicaOf = r["source_host"] + r["master_host"]
		for _, thread := range []string{"replica_io_running", "slave_io_running", "replica_sql_running", "slave_sql_running"} {
			if state, known := r[thread]; known && state != "Yes" {
				f.Halted = strings.ToUpper(thread) + " is " + state
			}
		}
	}
	return nil
}

func myTables(_ context.Context, a myAsk, o *MySQL, f *myFacts) error {
	for _, text := range o.Tables {
		n, err := parseName(text, o.Database, "`\"", false)
		if err != nil {
			return err
		}
		t := myTable{Name: n, Columns: map[string]myColumn{}}
		where := " WHERE TABLE_SCHEMA = " + myLiteral(n.schema) + " AND TABLE_NAME = " + myLiteral(n.table)
		rows, _, err := a.rows("SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES" + where)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			t.Exists, t.View, t.Engine = true, strings.Contains(rows[0][0], "VIEW"), rows[0][1]
		}
		if !t.Exists {
			same, _, err := a.rows("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE LOWER(TABLE_NAME) = LOWER(" + myLiteral(n.table) + ") ORDER BY 1, 2 LIMIT 3")
			if err != nil {
				return err
			}
			for _, r := range same {
				t.Similar = append(t.Similar, r[0]+"."+r[1])
			}
		}
		if _, _, err := a.rows("SELECT 1 FROM " + n.my() + " LIMIT 0"); denied(err) {
			t.Denied = true
		}
		if rows, _, err = a.rows("SELECT COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, CHARACTER_SET_NAME, EXTRA, IS_NULLABLE FROM information_schema.COLUMNS" + where); err != nil {
			return err
		}
		for _, r := range rows {
			t.Columns[strings.ToLower(r[0])] = myColumn{Type: r[1], Data: strings.ToLower(r[2]), Charset: r[3], Generated: strings.Contains(r[4], "VIRTUAL"), Nullable: r[5] == "YES"}
		}
		// Only those that the user has TRIGGER for show.
		rows, _, err = a.rows("SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = " + myLiteral(n.schema) + " AND EVENT_OBJECT_TABLE = " + myLiteral(n.table))
		if err != nil {
			return err
		}
		for _, r := range rows {
			t.Triggers = append(t.Triggers, r[0])
		}
		f.Tables = append(f.Tables, t)
	}
	return nil
}

func myCheck(ctx context.Context, _ myAsk, o *MySQL, f *myFacts) error {
	if o.Check != nil && f.Vars["log_bin"] == "ON" && len(f.Missing) == 0 {
		f.Refusal = o.Check(ctx)
	}
	return nil
}

// myWriters looks for them where it matters: where statements are logged, they hide what they write.
func myWriters(ctx context.Context, _ myAsk, o *MySQL, f *myFacts) error {
	if o.Writers == nil || f.Vars["binlog_format"] == "" || strings.EqualFold(f.Vars["binlog_format"], "ROW") || len(f.Missing) > 0 {
		return nil
	}
	f.Writers, f.WriterErr = o.Writers(ctx)
	// What the user has no privilege for does not show.
	seen := map[string]bool{}
	for _, t := range f.Tables {
		if s := t.Name.schema; !seen[s] {
			seen[s] = true
			f.Hidden = append(f.Hidden, hidden{"all triggers and views of " + s, "TRIGGER, SHOW VIEW", "GRANT TRIGGER, SHOW VIEW ON " + backtick(s) + ".* TO " + f.account() + ";"})
		}
	}
	return nil
}

func myXA(_ context.Context, a myAsk, _ *MySQL, f *myFacts) error {
	rows, _, err := a.rows("XA RECOVER")
	switch {
	case denied(err):
		f.Hidden = append(f.Hidden, hidden{"prepared XA transactions", "XA_RECOVER_ADMIN", "GRANT XA_RECOVER_ADMIN ON *.* TO " + f.account() + ";"})
		return nil
	case err != nil:
		return err
	}
	f.XA = len(rows)
	return nil
}
