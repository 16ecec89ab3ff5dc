package wal

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// TLS says how the connection is protected, in libpq's words.
type TLS struct {
	// Mode is disable, prefer, require, verify-ca or verify-full; empty is prefer, or verify-full where CA is given.
	Mode string
	// CA, Cert and Key are PEM files.
	CA, Cert, Key string
}

// Options configure a Source.
type Options struct {
	// Pipeline names the pipeline in logs.
	Pipeline string

	// Host (a name, an address, or the folder of a Unix socket), Port, User, Password, Database and TLS lead to the server.
	Host     string
	Port     uint16
	User     string
	Password string
	Database string
	TLS      TLS

	Slot        string
	Publication string
	// Tables are schema.table, quoted as SQL would where needed.
	Tables []string
	// Columns maps roles to columns of every table.
	Columns event.Columns

	// Create makes publication and slot where they are absent and nothing says that we ran before.
	Create bool
	// FailoverSlot creates the slot with FAILOVER (17 or newer).
	FailoverSlot bool
	// Start is "now", "earliest" or empty; an existing slot wins over it.
	Start string
	// RanBefore says that something outside shows that the pipeline ran before although no checkpoint is stored (an
	// emptied data_dir): then no slot is created (I5).
	RanBefore bool

	// RowLimit is the size in bytes above which a row is a record failure; 0: 16 MiB.
	RowLimit int
	// Messages makes events of transactional logical messages with the prefix MessagePrefix (14 or newer). Tables may then
	// be empty.
	Messages bool
	// Heartbeat, if not 0, is how often a logical message is written, to move the slot of a quiet database.
	Heartbeat time.Duration
	// RewindWindow and RewindBytes, of which at most one is set, hold the confirmed position behind the stored one by a
	// time or by bytes of log. Past says what was stored when, before this process began.
	RewindWindow time.Duration
	RewindBytes  int64
	Past         []Moment
	// CheckEvery is how often publication and tables are compared; 0: a minute.
	CheckEvery time.Duration
	// StatusEvery is how often the server is told that we live; 0: a third of its wal_sender_timeout, at most 10 s.
	StatusEvery time.Duration

	Logger *slog.Logger
	// Conditions, where not nil, is told what keeps the source from working; nil clears. Keys: "slot_creation", "slot_limit", "standby_away".
	Conditions func(key string, f *event.Fault)
	// Filtered, where not nil, counts what was written for us and is no event. Any goroutine.
	Filtered func(reason string, n int)
}

// check fills defaults and refuses what cannot work.
func (o *Options) check() ([]name, *event.Fault) {
	if o.RowLimit <= 0 {
		o.RowLimit = 16 << 20
	}
	if o.Port == 0 {
		o.Port = 5432
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.CheckEvery <= 0 {
		o.CheckEvery = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Conditions == nil {
		o.Conditions = func(string, *event.Fault) {}
	}
	if !slotName(o.Slot) {
		return nil, faultOptions(fmt.Sprintf("slot %q is not 1 to 63 of a-z, 0-9 and _", o.Slot))
	}
	if o.Publication == "" || len(o.Publication) > 63 {
		return nil, faultOptions("the publication's name must have 1 to 63 bytes")
	}
	if o.Filtered == nil {
		o.Filtered = func(string, int) {}
	}
	if len(o.Tables) == 0 && !o.Messages {
		return nil, faultOptions("no table is named")
	}
	switch o.Start {
	case "", "now", "earliest":
	default:
		return nil, faultOptions(fmt.Sprintf("start %q is neither now nor earliest", o.Start))
	}
	switch o.TLS.Mode {
	case "", "disable", "prefer", "require", "verify-ca", "verify-full":
	default:
		return nil, faultOptions(fmt.Sprintf("tls mode %q is unknown", o.TLS.Mode))
	}
	var names []name
	seen := map[name]bool{}
	for _, t := range o.Tables {
		n, err := parseTable(t)
		if err != nil {
			return nil, faultOptions(err.Error())
		}
		if seen[n] {
			return nil, faultOptions(fmt.Sprintf("table %s is named twice", n))
		}
		seen[n] = true
		names = append(names, n)
	}
	return names, nil
}

// slotName is the server's own rule.
func slotName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// columnNames lists the mapped columns, each once, in the order of roles.
func columnNames(c event.Columns) []string {
	var names []string
	seen := map[string]bool{}
	for _, m := range c {
		if m.Column != "" && !seen[m.Column] {
			seen[m.Column] = true
			names = append(names, m.Column)
		}
	}
	return names
}

// selection hashes what decides which rows are counted: tables, the publication's rows and the columns. A prefix counts
// only under the same selection (design: positions).
func selection(names []name, d depends, c event.Columns, messages bool) string {
	h := fnv.New64a()
	for _, n := range names {
		fmt.Fprintf(h, "t%q.%q;", n.schema, n.table)
	}
	fmt.Fprintf(h, "p%q %d;", d.Publication.Name, d.Publication.OID)
	for _, t := range d.Tables {
		fmt.Fprintf(h, "r%q %d %d %d;", t.Name, t.RelID, t.Member, t.Schema)
	}
	if messages {
		fmt.Fprint(h, "m;")
	}
	for role, m := range c {
		fmt.Fprintf(h, "c%d %q %q %t %d;", role, m.Column, m.Constant, m.IsConst, m.As)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// place names the server without credentials.
func (o *Options) place() string {
	host := o.Host
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "/") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d/%s", host, o.Port, o.Database)
}
