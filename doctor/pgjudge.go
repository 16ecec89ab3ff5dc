package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// judgePostgres says what the facts mean, in the order in which a start would meet them.
func judgePostgres(o *Postgres, f *pgFacts) list {
	var l list
	how := "without TLS"
	if f.TLS {
		how = "with TLS"
	}
	l.ok(codeReach, "Postgres %s answers, %s", f.version(), how)
	if f.Version < 140000 {
		l.add(Error, codeVersion, "version "+f.version()+" is older than 14", "a start stops here", "use Postgres 14 or newer")
	}
	f.judgeServer(&l, o)
	f.judgeReplication(&l, o)
	f.judgeTables(&l, o)
	f.judgePublication(&l, o)
	f.judgeSlot(&l, o)
	f.judgeHeld(&l)
	f.judgeStandby(&l, o)
	l.hide(f.Hidden)
	return l
}

func (f *pgFacts) judgeServer(l *list, o *Postgres) {
	if level := f.Settings["wal_level"]; level == "logical" {
		l.ok(codeWALLevel, "wal_level is logical")
	} else {
		l.add(Error, codeWALLevel, "wal_level is "+level+", not logical", "the log lacks what rows are decoded from: a start stops here",
			"ALTER SYSTEM SET wal_level = 'logical';\nthen restart the server (a managed service has a parameter for it, such as rds.logical_replication = 1)")
	}
	f.judgeRoom(l, o)
	f.judgeKeep(l)
	f.judgeTimeouts(l)
	off := ""
	for _, s := range []string{"fsync", "full_page_writes"} {
		if f.Settings[s] == "off" {
			off = s
			l.add(Warning, codeDurable, s+" is off", "a crash of the machine can damage the database, and lose commits whose events were already sent", "ALTER SYSTEM SET "+s+" = on; SELECT pg_reload_conf();")
		}
	}
	switch {
	case f.Settings["synchronous_commit"] == "off":
		l.add(Note, codeDurable, "synchronous_commit is off by default", "a transaction is not answered for until it is on disk: a crash can lose commits that the service believed in; an event is sent only of what was flushed", "")
	case off == "":
		l.ok(codeDurable, "commits are on disk before they are acknowledged")
	}
}

func (f *pgFacts) judgeRoom(l *list, o *Postgres) {
	slots, senders := number(f.Settings["max_replication_slots"]), number(f.Settings["max_wal_senders"])
	needSlot := f.Slot == nil
	switch {
	case needSlot && slots-f.Slots < 1:
		l.add(Error, codeRoom, fmt.Sprintf("all %d replication slots are in use", slots), "the slot "+o.Slot+" does not exist yet and cannot be created",
			fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d;\nthen restart the server; or drop what nobody needs: SELECT slot_name, active, restart_lsn FROM pg_replication_slots;", max(slots*2, 10)))
	case f.Refused != nil && f.Refused.State == "53300", senders-f.Senders < 1 && (f.Slot == nil || !f.Slot.Active):
		l.add(Error, codeRoom, fmt.Sprintf("all %d WAL senders are in use", senders), "outtail holds one while it runs",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d;\nthen restart the server", max(senders*2, 10)))
	case senders-f.Senders < 2 && (f.Slot == nil || !f.Slot.Active):
		l.add(Note, codeRoom, fmt.Sprintf("%d of %d WAL senders are in use: one is left", f.Senders, senders), "outtail takes the last one; a backup or another standby then finds none",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d;\nthen restart the server", max(senders*2, 10)))
	default:
		l.ok(codeRoom, "%d of %d replication slots and %d of %d WAL senders are in use", f.Slots, slots, f.Senders, senders)
	}
}

func (f *pgFacts) judgeKeep(l *list) {
	keep := setting(f.Settings["max_slot_wal_keep_size"]) // MB
	switch {
	case keep < 0:
		l.add(Note, codeKeep, "max_slot_wal_keep_size is -1: a slot keeps the log without bound", "nothing is ever lost by waiting, but if outtail stops for long the disk of the server fills up: alert on outtail_source_retained_bytes, or set a bound and accept that the slot is lost beyond it",
			"ALTER SYSTEM SET max_slot_wal_keep_size = '100GB'; SELECT pg_reload_conf();\n(only if the database matters more than the events)")
	case keep < 1024:
		l.add(Warning, codeKeep, "max_slot_wal_keep_size is "+size(keep<<20), "a short stop of outtail under load is enough for the server to give the slot up; what it kept is then not sent",
			"ALTER SYSTEM SET max_slot_wal_keep_size = '100GB'; SELECT pg_reload_conf();")
	default:
		l.ok(codeKeep, "a slot keeps up to %s of log (max_slot_wal_keep_size)", size(keep<<20))
	}
}

func (f *pgFacts) judgeTimeouts(l *list) {
	sender := time.Duration(setting(f.Settings["wal_sender_timeout"])) * time.Millisecond
	fine := true
	switch {
	case sender == 0:
		fine = false
		l.add(Note, codeTimeouts, "wal_sender_timeout is 0", "after a lost connection the server believes for long that outtail still reads, and a restarted one waits for the slot", "ALTER SYSTEM SET wal_sender_timeout = '60s'; SELECT pg_reload_conf();")
	case sender < 10*time.Second:
		fine = false
		l.add(Warning, codeTimeouts, "wal_sender_timeout is "+sender.String(), "a short pause of network or machine ends the connection, again and again", "ALTER SYSTEM SET wal_sender_timeout = '60s'; SELECT pg_reload_conf();")
	}
	if raw := f.Settings["idle_replication_slot_timeout"]; raw != "" && setting(raw) > 0 {
		fine = false
		l.add(Warning, codeTimeouts, "idle_replication_slot_timeout is "+raw, "when outtail is stopped for longer the server invalidates the slot, and what it kept is not sent",
			"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();")
	}
	if fine {
		l.ok(codeTimeouts, "wal_sender_timeout is %s", sender)
	}
}

func (f *pgFacts) judgeReplication(l *list, o *Postgres) {
	r := f.Refused
	role := "ALTER ROLE " + pgIdent(o.User) + " WITH REPLICATION;\n(on Amazon RDS: GRANT rds_replication TO " + pgIdent(o.User) + ";)"
	switch {
	case r == nil:
		l.ok(codeReplication, "the role %s opens a replication connection", o.User)
	case r.State == "42601" || strings.Contains(r.Text, "unsupported startup parameter") || r.State == "08P01":
		l.add(Error, codeReplication, "a connection pooler stands between: "+r.Text, "a pooler does not carry replication connections", "name the server itself in host and port")
	case r.State == "42501" || !f.Replication && !f.Superuser:
		l.add(Error, codeReplication, "the role "+o.User+" may not use replication", "a start stops here", role)
	case r.State == "28000" && strings.Contains(r.Text, "pg_hba"):
		l.add(Error, codeReplication, "pg_hba.conf lets ordinary connections in, and replication connections not: "+r.Text, "a start stops here", hbaLine(o))
	case r.State == "53300" || r.State == "53400":
		// judgeRoom says it
	default:
		l.add(Error, codeReplication, "no replication connection: "+r.Text, "a start stops here", "the server's log tells more")
	}
	if f.Expires != 0 && f.Expires < 30*24*time.Hour {
		l.add(Warning, codeReplication, "the password of the role "+o.User+" expires in "+span(f.Expires), "a connection that is lost after that does not come back",
			"ALTER ROLE "+pgIdent(o.User)+" VALID UNTIL 'infinity';")
	}
	if f.Connections >= 0 && f.Connections < roleConnections {
		l.add(Warning, codeReplication, fmt.Sprintf("the role %s may have %d connections at once", o.User, f.Connections), "outtail holds two, and needs two more while it connects anew or looks a partition up, and doctor others",
			fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d;", pgIdent(o.User), 2*roleConnections))
	}
}

// roleConnections is what outtail and doctor need beside each other.
const roleConnections = 6

func (f *pgFacts) judgeTables(l *list, o *Postgres) {
	for _, t := range f.Tables {
		switch {
		case !t.Exists:
			l.add(Error, codeTables, "the table "+t.Name.String()+" does not exist", "a start stops here",
				"create it (outtail init --source postgres prints the statement), or correct tables; names are folded to lower case unless in double quotes")
			continue
		case t.Kind != "r" && t.Kind != "p":
			l.add(Error, codeTables, t.Name.String()+" is not a table but "+relkind(t.Kind), "only rows of tables are in the log", "name the table behind it in tables")
			continue
		case t.Persistence != "p":
			l.add(Error, codeTables, "the table "+t.Name.String()+" is unlogged or temporary", "its rows are not in the log", "ALTER TABLE "+t.Name.pg()+" SET LOGGED;")
			continue
		case t.Unlogged != nil:
			l.add(Error, codeTables, "the partition "+t.Unlogged.String()+" of "+t.Name.String()+" is unlogged", "its rows are not in the log", "ALTER TABLE "+t.Unlogged.pg()+" SET LOGGED;")
		default:
			l.ok(codeTables, "the table %s exists", t.Name)
		}
		f.judgeColumns(l, o, t)
		if !t.Select {
			l.add(Warning, codeSelect, "the user may not select from "+t.Name.String(), "streaming does not need it; a replay from the table does",
				"GRANT USAGE ON SCHEMA "+pgIdent(t.Name.schema)+" TO "+pgIdent(o.User)+"; GRANT SELECT ON "+t.Name.pg()+" TO "+pgIdent(o.User)+";")
		}
	}
}

func (f *pgFacts) judgeColumns(l *list, o *Postgres, t pgTable) {
	fine, mapped := true, 0
	for r := range event.RoleCount {
		m := o.Columns[r]
		if m.IsConst || m.Column == "" {
			continue
		}
		mapped++
		c, ok := t.Columns[m.Column]
		role := fmt.Sprintf("column %s of %s (role %s)", m.Column, t.Name, r)
		switch {
		case !ok:
			fine = false
			l.add(Error, codeColumns, role+" does not exist", "a start stops here", "ALTER TABLE "+t.Name.pg()+" ADD COLUMN "+pgIdent(m.Column)+" text;\nor correct columns in the configuration")
		case c.Generated != "" && !f.sendsGenerated(t, m.Column):
			fine = false
			repair := "map another column"
			if f.Version >= 180000 && c.Generated == "s" {
				repair += ", or\nALTER PUBLICATION " + pgIdent(o.Publication) + " SET (publish_generated_columns = stored);"
			}
			l.add(Error, codeColumns, role+" is generated and not published", "a start stops here", repair)
		case c.Type == "bytea" && r != event.Payload && m.As == event.Hex:
			fine = false
			l.add(Note, codeColumns, role+" is bytea and arrives as hex", "consumers that expect a UUID or base64 do not find it", fmt.Sprintf("in columns: %s: { column: %s, as: uuid }, or base64", r, m.Column))
		case r == event.OccurredAt && c.Type == "timestamp without time zone":
			fine = false
			l.add(Note, codeColumns, role+" has no time zone", "its values are taken as UTC", "")
		case r == event.OccurredAt && !strings.HasPrefix(c.Type, "timestamp"):
			fine = false
			l.add(Warning, codeColumns, role+" is of type "+c.Type, "it is no point in time: the record's timestamp becomes the commit's", "")
		}
	}
	if fine {
		l.ok(codeColumns, "the %d mapped columns of %s exist", mapped, t.Name)
	}
}

// sendsGenerated says whether the publication has a generated column: from 18 on, where it is stored, and all of them are
// published or it is listed.
func (f *pgFacts) sendsGenerated(t pgTable, column string) bool {
	return f.Version >= 180000 && t.Columns[column].Generated == "s" && f.Publication != nil &&
		(t.List == nil && f.Publication.Generated || slices.Contains(t.List, column))
}

func relkind(k string) string {
	switch k {
	case "v":
		return "a view"
	case "m":
		return "a materialized view"
	case "f":
		return "a foreign table"
	}
	return "something else"
}

func (f *pgFacts) judgePublication(l *list, o *Postgres) {
	pub := pgIdent(o.Publication)
	p := f.Publication
	if p == nil {
		names := make([]string, len(f.Tables))
		for i, t := range f.Tables {
			names[i] = t.Name.pg()
		}
		tables := " FOR TABLE " + strings.Join(names, ", ")
		if len(names) == 0 { // for messages alone
			tables = ""
		}
		sql := fmt.Sprintf("CREATE PUBLICATION %s%s WITH (publish = 'insert', publish_via_partition_root = true);", pub, tables)
		if o.Create && f.Slot == nil && f.Stored.IsZero() {
			if lacks := f.lacksToPublish(o); lacks != "" {
				l.add(Error, codePublication, "the publication "+o.Publication+" does not exist, and the user "+o.User+" may not create it: it "+lacks, "a start stops here",
					sql+"\nas somebody who owns the tables and may create in the database")
				return
			}
			l.add(Note, codePublication, "the publication "+o.Publication+" does not exist; the first start creates it (create: true)", "the user may: it owns the tables and may create in the database", sql)
			return
		}
		l.add(Error, codePublication, "the publication "+o.Publication+" does not exist", "a start stops here; inserts made without it are not sent by an existing slot", sql)
		return
	}
	fine := true
	if !p.Insert {
		fine = false
		l.add(Error, codePublication, "the publication "+o.Publication+" does not publish inserts", "no event is ever sent", "ALTER PUBLICATION "+pub+" SET (publish = 'insert');")
	}
	for _, t := range f.Tables {
		if !t.Exists {
			fine = false
			continue
		}
		before := len(*l)
		f.judgeMember(l, o, t)
		fine = fine && len(*l) == before
	}
	if fine {
		l.ok(codePublication, "the publication %s has the tables and publishes inserts", o.Publication)
	}
	f.judgeOperations(l, o)
}

// lacksToPublish says what the user would need in order to create the publication; "" where it has all of it.
func (f *pgFacts) lacksToPublish(o *Postgres) string {
	var lacks []string
	if !f.MayCreate {
		lacks = append(lacks, "lacks CREATE on the database "+o.Database)
	}
	for _, t := range f.Tables {
		if t.Exists && !t.Owner {
			lacks = append(lacks, "does not own "+t.Name.String())
		}
	}
	return strings.Join(lacks, ", and ")
}

func (f *pgFacts) judgeMember(l *list, o *Postgres, t pgTable) {
	pub, p := pgIdent(o.Publication), f.Publication
	switch {
	case p.ViaRoot && t.Ancestor != nil:
		l.add(Error, codeFilters, "the publication sends the rows of "+t.Name.String()+" as those of "+t.Ancestor.String(), "they are not found under the configured name: no event is sent",
			"name "+t.Ancestor.String()+" in tables, or\nALTER PUBLICATION "+pub+" SET (publish_via_partition_root = false);")
	case !t.Published && t.Ancestor == nil:
		l.add(Error, codePublication, "the publication "+o.Publication+" does not contain the table "+t.Name.String(), "no event of it is sent", "ALTER PUBLICATION "+pub+" ADD TABLE "+t.Name.pg()+";")
	case t.Kind == "p" && !p.ViaRoot:
		l.add(Note, codeFilters, t.Name.String()+" is partitioned and its rows are sent under the names of the partitions", "outtail knows whose they are, but if one is dropped before its rows were read, a start stops and asks",
			"ALTER PUBLICATION "+pub+" SET (publish_via_partition_root = true);\n(an alteration: the next start asks a person, once)")
	}
	if t.List != nil {
		for _, m := range o.Columns {
			if m.Column != "" && !m.IsConst && !slices.Contains(t.List, m.Column) {
				l.add(Error, codeFilters, "the publication's column list of "+t.Name.String()+" leaves out "+m.Column, "a start stops here",
					"ALTER PUBLICATION "+pub+" DROP TABLE "+t.Name.pg()+"; ALTER PUBLICATION "+pub+" ADD TABLE "+t.Name.pg()+";")
			}
		}
	}
	if t.Filter {
		l.add(Warning, codeFilters, "the publication filters the rows of "+t.Name.String(), "what it filters is never sent, without a word in the log",
			"if that is not meant:\nALTER PUBLICATION "+pub+" DROP TABLE "+t.Name.pg()+"; ALTER PUBLICATION "+pub+" ADD TABLE "+t.Name.pg()+";")
	}
}

// judgeOperations: what is published beyond inserts is read and left out, and it makes the server refuse UPDATE and DELETE
// of tables whose rows it cannot name.
func (f *pgFacts) judgeOperations(l *list, o *Postgres) {
	p := f.Publication
	if !p.Insert {
		return
	}
	only := "ALTER PUBLICATION " + pgIdent(o.Publication) + " SET (publish = 'insert');"
	if len(f.Nameless) > 0 {
		names := make([]string, len(f.Nameless))
		for i, n := range f.Nameless {
			names[i] = n.String()
		}
		l.add(Warning, codeOperations, "the publication publishes more than inserts, and of its tables "+strings.Join(names, ", ")+" have no primary key or other replica identity",
			"the server refuses every UPDATE or DELETE of them, so that nobody can clean them up", only)
		return
	}
	if p.Update || p.Delete {
		l.add(Note, codeOperations, "the publication "+o.Publication+" publishes more than inserts", "outtail leaves the rest out, but the server decodes and sends it (a clean-up of the table as much as the events)", only)
		return
	}
	l.ok(codeOperations, "the publication publishes inserts only")
}

// setting reads the number before the unit; -1 where there is none.
func setting(s string) int64 {
	head, _, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func number(s string) int { return int(setting(s)) }
