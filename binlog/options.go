package binlog

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"

	"github.com/outtail/outtail/event"
)

// Options is what a Source needs to know.
type Options struct {
	Kind     string // event.MySQL or event.MariaDB
	Pipeline string
	Host     string
	Port     int // 0: 3306
	User     string
	Password string
	Database string // the schema of tables that name none
	TLS      TLS
	Tables   []string
	ServerID uint32 // how we call ourselves as a replica; 0: derived from Seed
	Seed     string // e.g. data_dir and pipeline: equal for this pipeline for ever, different for others
	Start    Start
	OnUpdate string // "ignore", "warn" or "halt": what an UPDATE of an outbox row means
	Columns  event.Columns

	RowLimit   int         // bytes; a larger row is a Record fault; 0: 16 MiB
	SpillDir   string      // where transactions beyond 32 MiB wait; "" keeps them in memory, for tests
	SpillLimit int64       // bytes, by all sources that share SpillSpace; 0: 10 GiB
	SpillSpace *SpillSpace // what is in SpillDir; nil: nobody else writes there

	Prepared Prepared // where rows of prepared XA transactions wait; nil: they stop the source
	XALimit  int64    // bytes; 0: 1 GiB

	Logger *slog.Logger
	// Filtered, where not nil, is told of rows of our tables that are no events: "updated", "deleted", "history".
	Filtered func(reason string, rows int)
	// Conditions, where not nil, is told what keeps the source from working; nil clears. Keys: "spill", "xa".
	Conditions func(key string, f *event.Fault)
}

// TLS says how the connection is protected. CA, Cert and Key are files.
type TLS struct {
	Mode          string // disable, prefer, require, verify-ca, verify-full; "": prefer, or verify-full where CA is given
	CA, Cert, Key string
}

// Start is the rule for a start without a checkpoint.
type Start struct {
	Mode string // "now", "earliest", "gtid", "position", or "" for none
	GTID string
	File string
	Pos  uint64
}

// table is a configured table.
type table struct {
	name          string // as configured
	schema, table string
}

const (
	defaultRowLimit   = 16 << 20
	defaultSpillLimit = 10 << 30
	defaultXALimit    = 1 << 30
)

// parseTables splits "schema.table", with parts in backticks or double quotes where they need it.
func parseTables(names []string, database string) ([]table, error) {
	var out []table
	for _, name := range names {
		parts, err := splitName(name)
		if err != nil {
			return nil, err
		}
		t := table{name: name}
		switch {
		case len(parts) == 2:
			t.schema, t.table = parts[0], parts[1]
		case len(parts) == 1 && database != "":
			t.schema, t.table = database, parts[0]
			t.name = database + "." + name
		default:
			return nil, fmt.Errorf("%q is not schema.table, and no database is set", name)
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no table is named")
	}
	return out, nil
}

func splitName(name string) ([]string, error) {
	var parts []string
	for rest := name; ; {
		var part string
		if rest != "" && (rest[0] == '`' || rest[0] == '"') {
			q := rest[:1]
			end := 1
			for {
				i := strings.Index(rest[end:], q)
				if i < 0 {
					return nil, fmt.Errorf("%q: a quote is open", name)
				}
				end += i + 1
				if !strings.HasPrefix(rest[end:], q) {
					break
				}
				end++
			}
			part, rest = strings.ReplaceAll(rest[1:end-1], q+q, q), rest[end:]
		} else {
			part = rest
			if i := strings.IndexByte(rest, '.'); i >= 0 {
				part = rest[:i]
			}
			rest = rest[len(part):]
		}
		if part == "" {
			return nil, fmt.Errorf("%q is not schema.table", name)
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, nil
		}
		if rest[0] != '.' {
			return nil, fmt.Errorf("%q is not schema.table", name)
		}
		rest = rest[1:]
	}
}

// deriveServerID gives a stable id in the upper half, where people seldom choose theirs.
func deriveServerID(seed string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(seed))
	id := h.Sum32() | 1<<31
	if id == 1<<32-1 {
		id--
	}
	return id
}

// deriveUUID is the replica's UUID, by which the server tells a returning replica from another one of the same id.
func deriveUUID(seed string) string {
	h := fnv.New128a()
	h.Write([]byte(seed))
	u := h.Sum(nil)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return string(appendUUID(nil, u))
}

// selection hashes what selects rows: a prefix of another selection counts nothing.
func selection(o *Options, tables []table) string {
	h := fnv.New64a()
	for _, t := range tables {
		fmt.Fprintf(h, "%q.%q\n", t.schema, t.table)
	}
	for r, m := range o.Columns {
		fmt.Fprintf(h, "%d %q %q %v %d\n", r, m.Column, m.Constant, m.IsConst, m.As)
	}
	fmt.Fprintf(h, "%s %d", o.OnUpdate, o.RowLimit)
	return fmt.Sprintf("%016x", h.Sum64())
}
