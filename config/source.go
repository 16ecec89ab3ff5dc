package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// Source is exactly one of its kinds.
type Source struct {
	Kind     string // event.Postgres, event.MySQL or event.MariaDB
	Postgres *Postgres
	// MySQL is set for MySQL and MariaDB, which have the same keys.
	MySQL *MySQL
}

// TLS says how a connection to a source is protected.
type TLS struct {
	Mode          string // disable, prefer, require, verify-ca or verify-full
	CA, Cert, Key string // PEM files; empty: none
}

// Server is how a source is reached.
type Server struct {
	Host     string
	Port     uint16
	User     string
	Password Secret
	Database string
	TLS      TLS
}

// Start is the rule for a start without a stored position; the zero value is none.
type Start struct {
	Mode string // now, earliest, gtid, position, or empty
	GTID string
	File string
	Pos  uint64
}

// Postgres is a Postgres source.
type Postgres struct {
	Server
	Slot         string
	Publication  string
	Tables       []string // schema.table, as written
	Create       bool
	FailoverSlot bool
	Start        Start // Mode now, earliest or empty
	Messages     bool
	Heartbeat    time.Duration
	// RewindWindow is how far the confirmed position stays behind the stored one: a duration, or bytes of log.
	RewindWindow      time.Duration
	RewindWindowBytes Size
}

// MySQL is a MySQL or MariaDB source.
type MySQL struct {
	Server
	Tables   []string // schema.table, as written; the schema may be left to Database
	ServerID uint32   // 0: derived
	Start    Start
	OnUpdate string // ignore, warn or halt
}

func (p *readPipeline) readSource(f field) {
	if !f.set() {
		f.bad(codeMissing, "is required", "name a source: postgres, mysql or mariadb")
		return
	}
	s := f.section()
	if s == nil {
		return
	}
	kinds := []string{event.Postgres, event.MySQL, event.MariaDB}
	var found []field
	for _, kind := range kinds {
		if k := s.get(kind); k.set() {
			found = append(found, k)
			if p.Source.Kind == "" {
				p.Source.Kind, p.source = kind, k
			}
		}
	}
	unknown := s.close()
	switch {
	case len(found) > 1:
		found[1].r.fault(found[1].key, codeDuplicate, found[1].path, "a pipeline has one source, and there is "+p.Source.Kind+" already", "a second source is a second pipeline")
	case len(found) == 0 && unknown == 0:
		f.bad(codeMissing, "names no source", "name one of postgres, mysql and mariadb")
	}
	switch p.Source.Kind {
	case event.Postgres:
		p.readPostgres(p.source)
	case event.MySQL, event.MariaDB:
		p.readMySQL(p.source, p.Source.Kind)
	}
}

// slotName is Postgres's own rule.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (p *readPipeline) readPostgres(f field) {
	c := &Postgres{}
	p.Source.Postgres = c
	s := f.section()
	if s == nil {
		return
	}
	var told bool
	c.Server, told = readServer(s, event.Postgres)
	database := s.get("database")
	if c.Database == "" && told && !broken(database) {
		database.bad(codeMissing, "is required", "a slot belongs to one database")
	}

	// A slot's name knows no hyphen.
	standard := "outtail_" + strings.ReplaceAll(p.Name, "-", "_")
	p.slot = s.get("slot")
	c.Slot = p.slot.str(standard)
	if !slotName.MatchString(c.Slot) && (p.slot.set() || pipelineName.MatchString(p.Name)) {
		what := "the default, outtail_" + p.Name + ","
		if p.slot.set() {
			what = p.slot.shown()
		}
		p.slot.bad(codeType, what+" is no name for a slot", "a slot's name has 1 to 63 of a-z, 0-9 and _")
	}
	publication := s.get("publication")
	c.Publication = publication.str(standard)
	if publication.set() && (c.Publication == "" || len(c.Publication) > 63) {
		publication.bad(codeType, "the publication's name has to have 1 to 63 bytes", "")
	}
	c.Messages = s.get("messages").boolean(false)
	if tables := s.get("tables"); tables.set() || !c.Messages { // messages need no table
		c.Tables, p.tables = readTables(tables, parsePostgresTable)
	}
	c.Create = s.get("create").boolean(false)
	c.FailoverSlot = s.get("failover_slot").boolean(false)

	start := s.get("start")
	if start.set() && start.value.Kind == mapping {
		start.bad(codeType, "has to be now or earliest: a Postgres slot knows its own position", "")
	} else if mode := start.enum("", "now", "earliest"); mode != "" {
		c.Start.Mode = mode
	}
	heartbeat := s.get("heartbeat")
	if c.Heartbeat = heartbeat.duration(0, 0); c.Heartbeat > 0 && c.Heartbeat < time.Second {
		heartbeat.bad(codeType, heartbeat.shown()+" is below a second", "10s is often enough; each one writes to the log")
	}
	window := s.get("rewind_window")
	if text, ok := window.text(); ok {
		d, errDuration := ParseDuration(text)
		n, errSize := ParseSize(text)
		switch {
		case errDuration == nil:
			c.RewindWindow = d
		case errSize == nil:
			c.RewindWindowBytes = n
		default:
			window.bad(codeType, window.shown()+" is neither a duration nor a size", "write 24h or 10GiB")
		}
	}
	s.close()
}

func (p *readPipeline) readMySQL(f field, kind string) {
	c := &MySQL{OnUpdate: "warn"}
	p.Source.MySQL = c
	s := f.section()
	if s == nil {
		return
	}
	c.Server, _ = readServer(s, kind)
	c.Tables, p.tables = readTables(s.get("tables"), func(text string) (table, error) { return parseMySQLTable(text, c.Database) })
	p.id = s.get("server_id")
	c.ServerID = uint32(p.id.number(0, 0, 1<<32-1))
	c.Start = readStart(s.get("start"), kind)
	c.OnUpdate = s.get("on_update").enum("warn", "ignore", "warn", "halt")
	s.close()
}

var (
	mysqlGTID   = regexp.MustCompile(`^[0-9a-fA-F-]{32,36}(:[a-z_][a-z0-9_]{0,31})?(:\d+(-\d+)?)+((:[a-z_][a-z0-9_]{0,31})(:\d+(-\d+)?)+)*$`)
	mariadbGTID = regexp.MustCompile(`^\d+-\d+-\d+$`)
)

// readStart reads now, earliest, { gtid: … } or { file: …, pos: … }.
func readStart(f field, kind string) Start {
	if !f.set() {
		return Start{}
	}
	const hint = `write now, earliest, { gtid: "…" } or { file: binlog.000012, pos: 4 }`
	if f.value.Kind != mapping {
		return Start{Mode: f.enum("", "now", "earliest")}
	}
	s := f.section()
	gtid, file, pos := s.get("gtid"), s.get("file"), s.get("pos")
	unknown := s.close()
	switch {
	case gtid.set() && (file.set() || pos.set()):
		f.bad(codeDuplicate, "names a GTID set and a file", hint)
	case gtid.set():
		set := strings.Join(strings.Fields(gtid.required(hint)), "")
		if set != "" && !validGTIDs(set, kind) {
			gtid.bad(codeType, gtid.shown()+" is no GTID set of "+kind, "")
		}
		return Start{Mode: "gtid", GTID: set}
	case file.set() || pos.set():
		st := Start{Mode: "position", File: file.required(hint), Pos: 4}
		if !pos.set() {
			pos.bad(codeMissing, "is required", "4 is the beginning of a file")
		} else {
			// The dump command carries 32 bits; the first event stands behind four magic bytes.
			st.Pos = uint64(pos.number(4, 4, 1<<32-1))
		}
		return st
	case unknown == 0:
		f.bad(codeMissing, "is empty", hint)
	}
	return Start{}
}

func validGTIDs(set, kind string) bool {
	valid := mysqlGTID
	if kind == event.MariaDB {
		valid = mariadbGTID
	}
	for _, one := range strings.Split(set, ",") {
		if !valid.MatchString(one) {
			return false
		}
	}
	return true
}

// readServer reads what all sources share. A url gives what the fields do not: the fields win. told is false where a url
// was written and could not be read: what is missing then is no second finding.
func readServer(s *section, kind string) (c Server, told bool) {
	port := uint16(3306)
	if kind == event.Postgres {
		port = 5432
	}
	c = Server{Host: "127.0.0.1", Port: port}
	link := s.get("url")
	if text, ok := link.text(); ok {
		told = fromURL(link, text, kind, &c)
	} else {
		told = !link.set()
	}
	host := s.get("host")
	if c.Host = host.str(c.Host); host.set() && strings.TrimSpace(c.Host) == "" {
		host.bad(codeType, "is empty", "leave it out for 127.0.0.1")
	}
	if _, rest, ok := strings.Cut(c.Host, ":"); host.set() && ok && !strings.Contains(rest, ":") {
		host.bad(codeType, host.shown()+" holds a port", "the port has a key of its own")
	}
	c.Port = uint16(s.get("port").number(int64(c.Port), 1, 65535))
	user := s.get("user")
	if c.User = user.str(c.User); c.User == "" && told && !broken(user) {
		user.bad(codeMissing, "is required", "`outtail init` prints the statements that create one")
	}
	password := s.get("password")
	if password.set() {
		c.Password = password.secret()
	}
	// Postgres may well authenticate without one (trust, peer, certificate): there only an empty text is suspicious.
	if c.Password.Empty() && told && !broken(password) && (password.set() || kind != event.Postgres) {
		password.warn(codeRisky, "the password is empty", "keep it out of the file: password: ${env:NAME} or ${file:/path}")
	}
	c.Database = s.get("database").str(c.Database)
	c.TLS = readTLS(s.get("tls"), c.TLS)
	return c, told
}

func readTLS(f field, def TLS) TLS {
	s := f.section()
	if s == nil {
		s = f.r.absent(f)
	}
	t := TLS{CA: readPEM(s.get("ca"), def.CA), Cert: readPEM(s.get("cert"), def.Cert), Key: readPEM(s.get("key"), def.Key)}
	standard := def.Mode
	if standard == "" {
		standard = "prefer"
		if t.CA != "" {
			standard = "verify-full"
		}
	}
	mode := s.get("mode")
	t.Mode = mode.enum(standard, "disable", "prefer", "require", "verify-ca", "verify-full")
	checkPair(s, t.Cert, t.Key)
	if t.Mode == "disable" && (t.CA != "" || t.Cert != "") {
		mode.warn(codeUseless, "tls is off, so ca, cert and key have no effect", "")
	}
	s.close()
	return t
}

// readPEM is the path of a file that has to be readable.
func readPEM(f field, def string) string {
	path := f.str(def)
	if !f.set() || path == "" {
		return path
	}
	file, err := os.Open(path)
	if err != nil {
		f.bad(codeReference, fmt.Sprintf("the file %s cannot be read: %s", f.shown(), reason(err)), "")
		return path
	}
	_ = file.Close()
	return path
}

// checkPair wants a client certificate whole.
func checkPair(s *section, cert, key string) {
	switch {
	case cert != "" && key == "":
		s.get("key").bad(codeMissing, "is required with cert", "")
	case key != "" && cert == "":
		s.get("cert").bad(codeMissing, "is required with key", "")
	}
}
