package wal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

// slotFacts is one row of pg_replication_slots, read as JSON so that one statement serves all versions.
type slotFacts struct {
	Plugin       string     `json:"plugin"`
	Type         string     `json:"slot_type"`
	Database     string     `json:"database"`
	Active       bool       `json:"active"`
	ActivePID    int        `json:"active_pid"`
	Restart      *event.LSN `json:"restart_lsn"`
	Confirmed    *event.LSN `json:"confirmed_flush_lsn"`
	WALStatus    string     `json:"wal_status"`
	TwoPhase     bool       `json:"two_phase"`           // 14
	Failover     bool       `json:"failover"`            // 17
	Synced       bool       `json:"synced"`              // 17: a standby's copy, or what was one before the promotion
	Invalidation string     `json:"invalidation_reason"` // 17
	Conflicting  bool       `json:"conflicting"`         // 16
}

// idleTimeout is the invalidation_reason of 18 for a slot that nobody read.
const idleTimeout = "idle_timeout"

// conflict is why the slot of a standby is lost where the server does not say more (16).
const conflict = "conflict with recovery"

// invalid says why the slot cannot be read any more; "" if it can.
func (s *slotFacts) invalid() string {
	switch {
	case s.Invalidation != "":
		return s.Invalidation
	case s.Conflicting:
		return conflict
	case s.WALStatus == "lost":
		return "wal_status lost"
	case s.Restart == nil || s.Confirmed == nil:
		return "it keeps no log"
	}
	return ""
}

// pubFacts is a publication.
type pubFacts struct {
	OID       uint32
	Row       string // xmin: changes with every ALTER PUBLICATION … SET, also back and forth
	AllTables bool
	Insert    bool
	ViaRoot   bool
	Generated bool // publish_generated_columns = stored (18)
}

// tableFacts is a configured table and how the publication holds it.
type tableFacts struct {
	Name        name
	RelID       uint32
	Kind        string // relkind
	Persistence string
	Member      uint32 // pg_publication_rel.oid, 0 where the table is not named in the publication
	Schema      uint32 // pg_publication_namespace.oid, 0 where its schema is not
	HasFilter   bool
	ColumnList  []string // nil: all
	// Ancestors are the tables of which it is a partition, nearest first; Published of them those in the publication.
	Ancestors         []uint32
	PublishedAncestor *name
	UnloggedPart      *name
	Children          []name   // tables that inherit from it without being partitions
	Parts             []uint32 // leaves of a partitioned table whose rows come under their names; before 15 of any
	Filled            []name   // of these the new ones that had rows before they were attached, see filled
	Columns           map[string]columnFacts
}

type columnFacts struct {
	Generated string // attgenerated: "s" or "v" (18)
	Type      uint32
	Base      uint32 // of a domain, else Type
}

// published says whether a column's values are sent: a generated one only from 18 on, where it is stored, and the publication
// says so for all of them or lists it.
func (f *facts) published(t *tableFacts, column string) bool {
	switch t.Columns[column].Generated {
	case "":
		return true
	case "s":
		return f.Version >= 180000 && f.Pub != nil && (t.ColumnList == nil && f.Pub.Generated || slices.Contains(t.ColumnList, column))
	}
	return false
}

// facts is what the server says at a connect.
type facts struct {
	Version     int
	WALLevel    string
	Encoding    string // of the database
	SystemID    string
	Timeline    uint32
	History     []timelineSwitch // of its timeline, oldest first; nil: the first one, or not known
	Recovery    bool             // it is a standby
	End         event.LSN        // end of its log
	Database    string
	SenderLimit time.Duration // wal_sender_timeout, 0: off
	Slot        *slotFacts
	Pub         *pubFacts
	Tables      []tableFacts // in configured order; RelID 0: does not exist
}

// began is where the server's timeline left its parent.
func (f *facts) began() event.LSN { return f.beganOf(f.Timeline) }

// beganOf is where a timeline left its parent, the server's own or one of its ancestors; 0: the first one, or not known.
func (f *facts) beganOf(timeline uint32) (at event.LSN) {
	for _, h := range f.History {
		if h.TLI == timeline {
			return at
		}
		at = h.At
	}
	if timeline == f.Timeline {
		return at
	}
	return 0
}

// catalog asks the server's catalogs over one connection; one goroutine at a time.
type catalog struct {
	conn *pgconn.PgConn
}

// rows runs one statement with text parameters; SQL NULL reads as "".
func (c *catalog) rows(ctx context.Context, sql string, args ...string) ([][]string, error) {
	params := make([][]byte, len(args))
	for i, a := range args {
		params[i] = []byte(a)
	}
	res := c.conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	if res.Err != nil {
		return nil, res.Err
	}
	out := make([][]string, len(res.Rows))
	for i, r := range res.Rows {
		out[i] = make([]string, len(r))
		for j, v := range r {
			out[i][j] = string(v)
		}
	}
	return out, nil
}

func (c *catalog) one(ctx context.Context, sql string, args ...string) ([]string, error) {
	rows, err := c.rows(ctx, sql, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

const walEnd = `CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END`

// server asks for version, wal_level and the end of the log.
func (c *catalog) server(ctx context.Context, f *facts) error {
	r, err := c.one(ctx, `SELECT current_setting('server_version_num'), current_setting('wal_level'), current_database(), `+walEnd+`, current_setting('server_encoding'), pg_is_in_recovery()`)
	if err != nil {
		return err
	}
	f.Version, _ = strconv.Atoi(r[0])
	f.WALLevel, f.Database, f.Encoding, f.Recovery = r[1], r[2], r[4], r[5] == "t"
	f.End, err = event.ParseLSN(r[3])
	return err
}

// slot reads the slot; nil if there is none.
func (c *catalog) slot(ctx context.Context, slot string) (*slotFacts, error) {
	r, err := c.one(ctx, `SELECT row_to_json(s) FROM pg_replication_slots s WHERE slot_name = $1`, slot)
	if err != nil || r == nil {
		return nil, err
	}
	s := &slotFacts{}
	if err := json.Unmarshal([]byte(r[0]), s); err != nil {
		return nil, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	return s, nil
}

// publication reads the publication; nil if there is none.
func (c *catalog) publication(ctx context.Context, pub string) (*pubFacts, error) {
	r, err := c.one(ctx, `SELECT oid, xmin::text, puballtables, pubinsert, pubviaroot, to_jsonb(p)->>'pubgencols' FROM pg_publication p WHERE pubname = $1`, pub)
	if err != nil || r == nil {
		return nil, err
	}
	return &pubFacts{OID: oid(r[0]), Row: r[1], AllTables: r[2] == "t", Insert: r[3] == "t", ViaRoot: r[4] == "t", Generated: r[5] == "s"}, nil
}

// table reads one table and its part in the publication.
func (c *catalog) table(ctx context.Context, version int, n name, p *pubFacts) (tableFacts, error) {
	t := tableFacts{Name: n}
	r, err := c.one(ctx, `SELECT c.oid, c.relkind, c.relpersistence, coalesce((SELECT string_agg(relid::oid::text, ' ' ORDER BY o)
		FROM pg_partition_ancestors(c.oid) WITH ORDINALITY a(relid, o) WHERE relid <> c.oid), '')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, n.schema, n.table)
	if err != nil || r == nil {
		return t, err
	}
	t.RelID, t.Kind, t.Persistence = oid(r[0]), r[1], r[2]
	for _, a := range strings.Fields(r[3]) {
		t.Ancestors = append(t.Ancestors, oid(a))
	}
	rel := r[0]
	if err := c.columns(ctx, rel, &t); err != nil {
		return t, err
	}
	if t.Kind == "p" {
		r, err := c.one(ctx, `SELECT n.nspname, c.relname FROM pg_partition_tree($1::oid::regclass) p JOIN pg_class c ON c.oid = p.relid
			JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.isleaf AND c.relpersistence <> 'p' AND c.relkind = 'r' LIMIT 1`, rel)
		if err != nil {
			return t, err
		}
		if r != nil {
			t.UnloggedPart = &name{r[0], r[1]}
		}
		if p != nil && (!p.ViaRoot || version < filledVersion) {
			leaves, err := c.rows(ctx, `SELECT relid::oid FROM pg_partition_tree($1::oid::regclass) WHERE isleaf ORDER BY 1`, rel)
			if err != nil {
				return t, err
			}
			for _, l := range leaves {
				t.Parts = append(t.Parts, oid(l[0]))
			}
		}
	}
	if t.Kind == "r" {
		rows, err := c.rows(ctx, `SELECT n.nspname, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			JOIN pg_namespace n ON n.oid = c.relnamespace WHERE i.inhparent = $1::oid ORDER BY 1, 2`, rel)
		if err != nil {
			return t, err
		}
		for _, r := range rows {
			t.Children = append(t.Children, name{r[0], r[1]})
		}
	}
	if p == nil {
		return t, nil
	}
	return t, c.membership(ctx, version, rel, p, &t)
}

func (c *catalog) columns(ctx context.Context, rel string, t *tableFacts) error {
	rows, err := c.rows(ctx, `SELECT a.attname, a.attgenerated, a.atttypid, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`, rel)
	if err != nil {
		return err
	}
	t.Columns = make(map[string]columnFacts, len(rows))
	for _, r := range rows {
		t.Columns[r[0]] = columnFacts{Generated: r[1], Type: oid(r[2]), Base: oid(r[3])}
	}
	return nil
}

// membership finds how the publication holds the table: by name, by schema (15), or one of its ancestors.
func (c *catalog) membership(ctx context.Context, version int, rel string, p *pubFacts, t *tableFacts) error {
	pub := strconv.FormatUint(uint64(p.OID), 10)
	extra := "false, ''"
	if version >= 150000 {
		extra = `r.prqual IS NOT NULL, coalesce((SELECT string_agg(a.attname::text, E'\x01') FROM pg_attribute a
			WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)), '')`
	}
	r, err := c.one(ctx, `SELECT r.oid, `+extra+` FROM pg_publication_rel r WHERE r.prpubid = $1::oid AND r.prrelid = $2::oid`, pub, rel)
	if err != nil {
		return err
	}
	if r != nil {
		t.Member, t.HasFilter = oid(r[0]), r[1] == "t"
		if r[2] != "" {
			t.ColumnList = strings.Split(r[2], "\x01")
		}
	}
	schemas := ""
	if version >= 150000 {
		r, err := c.one(ctx, `SELECT n.oid FROM pg_publication_namespace n JOIN pg_class c ON c.relnamespace = n.pnnspid WHERE n.pnpubid = $1::oid AND c.oid = $2::oid`, pub, rel)
		if err != nil {
			return err
		}
		if r != nil {
			t.Schema = oid(r[0])
		}
		schemas = ` OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = $1::oid AND s.pnnspid = c.relnamespace)`
	}
	if len(t.Ancestors) == 0 {
		return nil
	}
	// The topmost published ancestor is the one under whose name rows go out with publish_via_partition_root.
	r, err = c.one(ctx, `SELECT n.nspname, c.relname FROM pg_partition_ancestors($2::oid::regclass) WITH ORDINALITY a(relid, o)
		JOIN pg_class c ON c.oid = a.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid <> $2::oid AND ((SELECT puballtables FROM pg_publication WHERE oid = $1::oid)
			OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = $1::oid AND r.prrelid = c.oid)`+schemas+`)
		ORDER BY o DESC LIMIT 1`, pub, rel)
	if err == nil && r != nil {
		t.PublishedAncestor = &name{r[0], r[1]}
	}
	return err
}

// published reads publication and tables into f, anew, as of one moment: what changes between two statements would be told as something
// else.
func (c *catalog) published(ctx context.Context, f *facts, pub string, names []name) error {
	if _, err := c.conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY`).ReadAll(); err != nil {
		return err
	}
	err := c.read(ctx, f, pub, names)
	if _, end := c.conn.Exec(ctx, `ROLLBACK`).ReadAll(); err == nil {
		err = end
	}
	return err
}

func (c *catalog) read(ctx context.Context, f *facts, pub string, names []name) error {
	var err error
	if f.Pub, err = c.publication(ctx, pub); err != nil {
		return err
	}
	f.Tables = f.Tables[:0:0]
	for _, n := range names {
		t, err := c.table(ctx, f.Version, n, f.Pub)
		if err != nil {
			return err
		}
		f.Tables = append(f.Tables, t)
	}
	return nil
}

// filledVersion is the first one without this fault: a session that has decoded rows of a table before it was attached to a published
// one goes on as if it were not published, without a word. A new session that begins behind the ATTACH knows better.
const filledVersion = 150000

// filled looks in an old server for partitions that are not among those stored and that had rows before they were attached. Rows
// that are gone again leave no trace, and one that may not be read is taken to have had none.
func (c *catalog) filled(ctx context.Context, f *facts, stored depends) error {
	if f.Version >= filledVersion {
		return nil
	}
	for i := range f.Tables {
		t := &f.Tables[i]
		t.Filled = nil
		at := slices.IndexFunc(stored.Tables, func(o dependsTable) bool { return o.Name == t.Name.String() && o.RelID == t.RelID })
		if at < 0 {
			continue
		}
		for _, part := range t.Parts {
			if slices.Contains(stored.Tables[at].Parts, part) {
				continue
			}
			r, err := c.one(ctx, `SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE c.oid = $1::oid AND c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT')`, strconv.FormatUint(uint64(part), 10))
			if err != nil {
				return err
			}
			if r == nil {
				continue
			}
			n := name{r[0], r[1]}
			// What is younger, by transaction or within one, was written as a partition's.
			r, err = c.one(ctx, `SELECT EXISTS (SELECT FROM `+n.sql()+` x, (SELECT i.xmin, i.cmin FROM pg_inherits i
				WHERE i.inhrelid IN (SELECT relid FROM pg_partition_ancestors($1::oid::regclass)) ORDER BY age(i.xmin), i.cmin::text::bigint DESC LIMIT 1) a
				WHERE age(x.xmin) > age(a.xmin) OR x.xmin = a.xmin AND x.cmin::text::bigint < a.cmin::text::bigint)`, strconv.FormatUint(uint64(part), 10))
			if err != nil {
				return err
			}
			if r[0] == "t" {
				t.Filled = append(t.Filled, n)
			}
		}
	}
	return nil
}

// kept is what the server keeps for the slot.
type kept struct {
	end   event.LSN // end of the log
	bytes int64     // from restart_lsn on; -1: unknown
	// status is reserved, extended, unreserved or lost; safe is how much more may be written before the slot is lost, -1
	// where nothing limits it.
	status string
	safe   int64
	unread bool // no session has it
}

// retained asks for the end of the log, how much of it the slot keeps, and the slot's health.
func (c *catalog) retained(ctx context.Context, slot string) (k kept, err error) {
	r, err := c.one(ctx, `SELECT e.lsn, pg_wal_lsn_diff(e.lsn, s.restart_lsn)::bigint, s.wal_status, s.safe_wal_size, s.active::text
		FROM (SELECT `+walEnd+` lsn) e LEFT JOIN pg_replication_slots s ON s.slot_name = $1`, slot)
	if err != nil {
		return k, err
	}
	if k.end, err = event.ParseLSN(r[0]); err != nil {
		return k, err
	}
	k.bytes, k.status, k.safe, k.unread = count(r[1]), r[2], count(r[3]), r[4] == "false"
	return k, nil
}

// away names the standbys' slots in synchronized_standby_slots (17) that nobody reads.
func (c *catalog) away(ctx context.Context) (string, error) {
	r, err := c.one(ctx, `SELECT string_agg(n, ', ') FROM regexp_split_to_table(replace(current_setting('synchronized_standby_slots', true), '"', ''), '\s*,\s*') n
		WHERE n <> '' AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = n AND slot_type = 'physical' AND active)`)
	if err != nil {
		return "", err
	}
	return r[0], nil
}

// count reads a number of bytes; -1 where there is none.
func count(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// danger says whether the server is about to give the slot up: it has passed the limit already, or less than a third of
// what it keeps may still be written.
func (k kept) danger() bool {
	return k.status == "unreserved" || k.safe >= 0 && k.bytes >= 0 && k.status != "lost" && k.safe < k.bytes/3
}

func oid(s string) uint32 {
	v, _ := strconv.ParseUint(s, 10, 32)
	return uint32(v)
}
