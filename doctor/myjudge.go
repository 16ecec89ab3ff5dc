package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// judgeMySQL says what the facts mean, in the order in which a start would meet them.
func judgeMySQL(o *MySQL, f *myFacts) list {
	var l list
	how := "without TLS"
	if f.TLS {
		how = "with TLS"
	}
	is := event.MySQL
	if f.Maria {
		is = event.MariaDB
	}
	l.ok(codeReach, "%s %s answers, %s", is, f.Version, how)
	if is != o.Kind {
		l.add(Error, codeFlavour, "the server is "+is+", the configuration says "+o.Kind, "a start stops here", "write source: "+is+": instead of "+o.Kind+":")
		return l
	}
	f.judgeLog(&l)
	f.judgePrivileges(&l)
	f.judgeIDs(&l, o)
	f.judgeTables(&l, o)
	f.judgeRefusal(&l)
	f.judgeWriters(&l)
	f.judgeExpiry(&l)
	f.judgeNeeded(&l, o)
	f.judgeChanges(&l)
	f.judgeRest(&l, o)
	l.hide(f.Hidden)
	return l
}

// global is the statement that changes a setting now and, on MySQL, for the next start too.
func (f *myFacts) global(name, value string) string {
	if f.Maria {
		return "SET GLOBAL " + name + " = " + value + ";\n(and " + name + " = " + strings.Trim(value, "'") + " in the server's configuration)"
	}
	return "SET PERSIST " + name + " = " + value + ";"
}

func (f *myFacts) judgeLog(l *list) {
	if f.Vars["log_bin"] != "ON" {
		repair := "remove skip-log-bin / disable-log-bin from the server's configuration and restart it"
		if f.Maria {
			repair = "add log_bin and server_id to the server's configuration and restart it"
		}
		l.add(Error, codeLogBin, "the server writes no binary log (log_bin is OFF)", "there is nothing to read; a start stops here", repair)
		return
	}
	l.ok(codeLogBin, "the server writes a binary log")
	if v, known := f.Vars["binlog_row_metadata"]; known && !strings.EqualFold(v, "FULL") {
		l.add(Note, codeMetadata, "binlog_row_metadata is "+v+"; FULL is recommended",
			"without it the log does not name columns: names and character sets are taken from the catalogue, and an ALTER TABLE while outtail is down can be a safety stop. It adds some bytes for each table to each transaction", f.global("binlog_row_metadata", "'FULL'"))
	} else if known {
		l.ok(codeMetadata, "binlog_row_metadata is FULL")
	}
	fine := true
	const sessions = "\nsessions that are open keep the old value: restart the services that write"
	if v := f.Vars["binlog_format"]; v != "" && !strings.EqualFold(v, "ROW") {
		fine = false
		l.add(Error, codeFormat, "binlog_format is "+v, "the log has statements instead of rows; a start stops here", f.global("binlog_format", "'ROW'")+sessions)
	}
	if v := f.Vars["binlog_row_image"]; v != "" && !strings.EqualFold(v, "FULL") {
		fine = false
		l.add(Error, codeFormat, "binlog_row_image is "+v, "rows in the log may lack columns; a start stops here", f.global("binlog_row_image", "'FULL'")+sessions)
	}
	if v := f.Vars["binlog_row_value_options"]; v != "" {
		fine = false
		l.add(Note, codeFormat, "binlog_row_value_options is "+v, "updates of JSON are logged in part; outtail sends inserts only, which are whole", "")
	}
	if fine {
		l.ok(codeFormat, "binlog_format is ROW, binlog_row_image is FULL")
	}
	compressed := f.on("binlog_transaction_compression") || f.on("log_bin_compress")
	if compressed {
		l.ok(codeCompression, "the log is compressed, which outtail reads")
	}
	for _, t := range f.Tables {
		listed := func(names string) bool {
			for _, n := range strings.Split(names, ",") {
				if strings.EqualFold(strings.TrimSpace(n), t.Name.schema) {
					return true
				}
			}
			return false
		}
		switch {
		case f.DoDB != "" && !listed(f.DoDB):
			l.add(Error, codeLogged, "binlog_do_db is "+f.DoDB+": the schema "+t.Name.schema+" is not in the log", "no event of "+t.Name.String()+" is ever sent", "add binlog_do_db = "+t.Name.schema+" to the server's configuration, or remove the filter, and restart it")
		case f.IgnoreDB != "" && listed(f.IgnoreDB):
			l.add(Error, codeLogged, "binlog_ignore_db is "+f.IgnoreDB+": the schema "+t.Name.schema+" is not in the log", "no event of "+t.Name.String()+" is ever sent", "remove binlog_ignore_db = "+t.Name.schema+" from the server's configuration and restart it")
		}
	}
	switch mode := f.Vars["gtid_mode"]; {
	case f.Maria:
		l.ok(codeGTID, "GTIDs are on, as always on MariaDB")
	case mode == "ON":
		l.ok(codeGTID, "gtid_mode is ON")
	default:
		l.add(Note, codeGTID, "gtid_mode is "+mode, "positions are file and offset, which mean nothing on another server: after a failover a person has to decide where to go on",
			"SET PERSIST enforce_gtid_consistency = ON;\nSET PERSIST gtid_mode = OFF_PERMISSIVE; SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON;")
	}
}

// judgeRefusal tells what else a start would refuse, where nothing above has told why it would.
func (f *myFacts) judgeRefusal(l *list) {
	fault := event.AsFault(f.Refusal)
	if fault == nil || fault.Class != event.Environment || slices.ContainsFunc(*l, func(f Finding) bool { return f.Severity == Error }) {
		return
	}
	l.add(Error, codeTables, fault.Text, "a start stops here ("+fault.Code+")", fault.Hint)
}

// judgeWriters: a statement that is logged as such says nothing of what a trigger, view or routine behind it inserts.
func (f *myFacts) judgeWriters(l *list) {
	repair := f.global("binlog_format", "'ROW'") + "\nsessions that are open keep the old value: restart the services that write"
	if f.WriterErr != nil {
		l.add(Warning, codeWriters, "which triggers, views and routines write to the tables could not be asked: "+plainCause(f.WriterErr), "what they insert by a statement that is logged as such is not in the log", repair)
	}
	for _, w := range f.Writers {
		l.add(Error, codeWriters, "the "+w+" inserts rows of the outbox while binlog_format is "+f.Vars["binlog_format"], "the log has the statement that used it, not what it inserted: such rows cannot be sent, and reading stops there", repair)
	}
}

func (f *myFacts) judgePrivileges(l *list) {
	for _, p := range f.Missing {
		why := "outtail cannot read the log; a start stops here"
		if p != "REPLICATION SLAVE" {
			why = "outtail cannot ask where the log ends and which files there are; a start stops here"
		}
		l.add(Error, codePrivileges, "the user lacks "+p, why, "GRANT "+p+" ON *.* TO "+f.account()+";")
	}
	if len(f.Missing) == 0 {
		l.ok(codePrivileges, "the user may read the log")
	}
}

func (f *myFacts) judgeIDs(l *list, o *MySQL) {
	ours := fmt.Sprintf("server_id: %d", o.ReplicaID-1)
	id := f.number("server_id")
	switch {
	case id == 0:
		l.add(Error, codeServerID, "the server's server_id is 0", "it serves its log to nobody", f.global("server_id", "1"))
		return
	case id == int64(o.ReplicaID):
		l.add(Error, codeServerID, fmt.Sprintf("outtail would present itself with server_id %d, which is the server's own", o.ReplicaID), "the server refuses the dump", "in the pipeline's source: "+ours)
		return
	}
	streams := false
	for _, r := range f.Replicas {
		if r.ID != o.ReplicaID {
			continue
		}
		// MariaDB tells no UUID.
		if r.UUID != "" && r.UUID != strings.ToLower(o.ReplicaUUID) || r.UUID == "" && r.Host != o.ReplicaHost {
			l.add(Error, codeServerID, fmt.Sprintf("another replica (%s) has the server_id %d of outtail", r.Host, r.ID), "the server ends the one when the other connects, again and again", "in the pipeline's source: "+ours)
			return
		}
		streams = true
	}
	if streams {
		l.ok(codeServerID, "outtail reads the log now, as server_id %d", o.ReplicaID)
		return
	}
	l.ok(codeServerID, "server_id %d is free (the server's own is %d)", o.ReplicaID, id)
}

func (f *myFacts) judgeTables(l *list, o *MySQL) {
	for _, t := range f.Tables {
		switch {
		case t.Denied:
			repair := "GRANT SELECT ON " + t.Name.my() + " TO " + f.account() + ";"
			if !t.Exists {
				// Whoever may not look into a schema is not told whether the table is there.
				repair += "\nor correct tables: in the configuration, if there is no such table" + t.others()
			}
			l.add(Error, codeSelect, "the user may not select from "+t.Name.String(), "its columns cannot be read; a start stops here", repair)
			continue
		case !t.Exists:
			l.add(Error, codeTables, "the table "+t.Name.String()+" does not exist", "a start stops here", "create it (outtail init --source "+o.Kind+" prints the statement), or correct tables: in the configuration"+t.others())
			continue
		case t.View:
			l.add(Error, codeTables, t.Name.String()+" is a view", "rows are in the log under the name of the table behind it: no event is ever sent", "name the table behind it in tables")
			continue
		}
		switch engine := strings.ToLower(t.Engine); engine {
		case "innodb", "ndbcluster", "rocksdb", "tokudb":
			l.ok(codeTables, "the table %s exists (%s)", t.Name, t.Engine)
		case "blackhole":
			l.ok(codeTables, "the table %s exists (BLACKHOLE: its rows are in the log only, so nothing can be replayed from it)", t.Name)
		default:
			l.add(Warning, codeTables, "the table "+t.Name.String()+" is "+t.Engine+", which knows no transactions", "its rows stay, and are sent, when the transaction that wrote them is rolled back", "ALTER TABLE "+t.Name.my()+" ENGINE = InnoDB;")
		}
		f.judgeColumns(l, o, t)
		if len(t.Triggers) > 0 {
			l.add(Note, codeTriggers, "triggers on "+t.Name.String()+": "+strings.Join(t.Triggers, ", "), "an event is the row as it was written, after the triggers; what they write elsewhere is no event", "")
		}
	}
}

// readable are the character sets that outtail decodes; "" is no text.
var readable = []string{
	"", "utf8mb4", "utf8mb3", "utf8", "ascii", "binary", "latin1", "latin2", "latin5", "latin7", "greek", "hebrew", "koi8r", "koi8u", "cp850", "cp852", "cp866", "cp1250",
	"cp1251", "cp1256", "cp1257", "macroman", "tis620", "gbk", "gb2312", "gb18030", "big5", "sjis", "cp932", "ujis", "eucjpms", "euckr", "ucs2", "utf16", "utf16le", "utf32",
}

func (f *myFacts) judgeColumns(l *list, o *MySQL, t myTable) {
	fine, mapped := true, 0
	for r := range event.RoleCount {
		m := o.Columns[r]
		if m.IsConst || m.Column == "" {
			continue
		}
		mapped++
		c, ok := t.Columns[strings.ToLower(m.Column)]
		role := fmt.Sprintf("column %s of %s (role %s)", m.Column, t.Name, r)
		binary := strings.Contains(c.Data, "binary") || strings.Contains(c.Data, "blob")
		found := true
		switch {
		case !ok:
			l.add(Error, codeColumns, role+" does not exist", "a start stops here", "ALTER TABLE "+t.Name.my()+" ADD COLUMN "+backtick(m.Column)+" VARCHAR(255);\nor correct columns in the configuration")
		case c.Generated:
			l.add(Error, codeColumns, role+" is a virtual generated column", "it is not stored, and not in the log", "make it STORED, or map another column")
		case binary && r != event.Payload && m.As == event.Hex:
			l.add(Note, codeColumns, role+" is "+c.Type+" and arrives as hex", "consumers that expect a UUID or base64 do not find it", fmt.Sprintf("in columns: %s: { column: %s, as: uuid }, or base64", r, m.Column))
		case !slices.Contains(readable, strings.ToLower(c.Charset)):
			l.add(Error, codeColumns, role+" has the character set "+c.Charset, "outtail cannot decode it: every row is a record failure", "ALTER TABLE "+t.Name.my()+" MODIFY "+backtick(m.Column)+" "+c.Type+" CHARACTER SET utf8mb4;")
		case c.Charset != "" && !strings.HasPrefix(c.Charset, "utf8") && c.Charset != "ascii" && c.Charset != "binary":
			l.add(Note, codeColumns, role+" has the character set "+c.Charset, "outtail sends it as UTF-8, not byte for byte", "")
		case r == event.ID && c.Nullable:
			l.add(Warning, codeColumns, role+" may be NULL", "an event without an id is a record failure", "ALTER TABLE "+t.Name.my()+" MODIFY "+backtick(m.Column)+" "+c.Type+" NOT NULL;")
		case r == event.OccurredAt && c.Data == "datetime":
			l.add(Note, codeColumns, role+" is DATETIME, which has no time zone", "its values are taken as UTC", "")
		case r == event.OccurredAt && c.Data != "timestamp":
			l.add(Warning, codeColumns, role+" is of type "+c.Type, "it is no point in time: the record's timestamp becomes the commit's", "")
		default:
			found = false
		}
		fine = fine && !found
	}
	if fine {
		l.ok(codeColumns, "the %d mapped columns of %s exist", mapped, t.Name)
	}
}

// keepLonger is the statement that keeps binary logs for so many days.
func (f *myFacts) keepLonger(days int) string {
	if _, known := f.Vars["binlog_expire_logs_seconds"]; !known {
		return f.global("expire_logs_days", strconv.Itoa(days))
	}
	return f.global("binlog_expire_logs_seconds", strconv.Itoa(days*86400))
}

func (f *myFacts) judgeExpiry(l *list) {
	keep := f.retention()
	if v, known := f.Vars["binlog_expire_logs_auto_purge"]; known && v == "OFF" {
		keep = 0
	}
	set := f.keepLonger(7)
	switch {
	case keep == 0:
		l.ok(codeExpiry, "binary logs are kept until somebody purges them")
	case keep < 24*time.Hour:
		l.add(Warning, codeExpiry, "binary logs are kept for "+span(keep), "when outtail or its broker stops for longer, what it has not read is gone, and a start stops", set)
	case keep < 72*time.Hour:
		l.add(Note, codeExpiry, "binary logs are kept for "+span(keep), "a stop over a long weekend is longer", set)
	default:
		l.ok(codeExpiry, "binary logs are kept for %s", span(keep))
	}
	if n := f.number("max_binlog_total_size"); n > 0 {
		l.add(Note, codeExpiry, "binary logs are also bounded to "+size(n)+" (max_binlog_total_size)", "a burst of writes can remove what outtail has not read", f.global("max_binlog_total_size", "0"))
	}
}
