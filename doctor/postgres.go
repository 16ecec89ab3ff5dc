package doctor

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/outtail/outtail/event"
)

// Postgres is what is needed to look at a Postgres source.
type Postgres struct {
	Host         string
	Port         uint16
	User         string
	Password     string
	Database     string
	TLS          TLS
	Slot         string
	Publication  string
	Tables       []string // schema.table, quoted as SQL would where needed
	Columns      event.Columns
	Create       bool
	FailoverSlot bool
	Start        string // now, earliest or empty
	// StartTimeout is how long a start waits for a server that it does not reach.
	StartTimeout time.Duration
	// Refused is what a start makes of an error of connecting. May be nil.
	Refused func(error) *event.Fault
	Stored  Stored
	// NoState is the absolute data_dir in which there is no state file, "" where there is one.
	NoState string
	// Resume asks the server whether a session could go on after the stored position, as a start would: the Safety fault that a
	// start would end with, or another error where it could not be asked. May be nil.
	Resume func(context.Context) error
}

func (o *Postgres) place() string {
	return net.JoinHostPort(o.Host, strconv.Itoa(int(o.Port))) + "/" + o.Database
}

// CheckPostgres looks at the server. It always gives findings; what could not be asked is one of them.
func CheckPostgres(ctx context.Context, o Postgres) Part {
	part := Part{Part: "source", Kind: event.Postgres, Place: o.place()}
	var l list
	f, refused := collectPostgres(ctx, &o)
	if refused != nil {
		l = append(l, *refused)
	} else {
		l = judgePostgres(&o, f)
	}
	part.Findings = l
	return part
}

// pgFacts is what a server says.
type pgFacts struct {
	Version  int // server_version_num
	TLS      bool
	Settings map[string]string // "" or absent: this version has no such setting, or the user may not see it
	Recovery bool
	// Role attributes of the user.
	Superuser, Replication bool
	MayCreate              bool          // in the database
	Expires                time.Duration // until the password does; 0: never
	Connections            int           // that the role may have; -1: any number
	// Refused is why no replication connection could be made; nil if one was.
	Refused  *pgRefusal
	SystemID string
	Timeline uint32

	Slots, Senders int       // in use
	Standbys       int       // physical walsenders
	Guards         []pgGuard // the slots that synchronized_standby_slots names
	Slot           *pgSlot
	Stored         event.Checkpoint
	StoredErr      error
	Resume         error     // see Postgres.Resume
	End            event.LSN // of the log, read after the stored position
	Retained       int64     // bytes that the slot keeps, -1 unknown

	Publication *pgPublication
	Nameless    []sqlName // published tables whose rows an UPDATE or DELETE cannot name, where those are published; a few of them
	Tables      []pgTable
	Held        []pgHolder
	Hidden      []hidden
}

// pgRefusal is how the server, or what stands before it, refused.
type pgRefusal struct {
	State string // SQLSTATE, "" where no server answered
	Text  string
	Fault *event.Fault // what a start makes of it, where that is known
}

// pgSlot is a row of pg_replication_slots, read as JSON so that one statement serves all versions.
type pgSlot struct {
	Plugin       string     `json:"plugin"`
	Type         string     `json:"slot_type"`
	Database     string     `json:"database"`
	Temporary    bool       `json:"temporary"`
	Active       bool       `json:"active"`
	ActivePID    int        `json:"active_pid"`
	Restart      *event.LSN `json:"restart_lsn"`
	Confirmed    *event.LSN `json:"confirmed_flush_lsn"`
	WALStatus    string     `json:"wal_status"`
	Safe         *int64     `json:"safe_wal_size"`
	Invalidation string     `json:"invalidation_reason"` // 17
	Conflicting  bool       `json:"conflicting"`         // 16
	TwoPhase     bool       `json:"two_phase"`           // 14
	Failover     bool       `json:"failover"`            // 17
	Synced       bool       `json:"synced"`              // 17
	Application  string     `json:"-"`                   // application_name of the active process
}

// pgGuard is a standby's slot behind which events of failover slots are kept back.
type pgGuard struct {
	Name   string
	Active bool // and physical
}

type pgPublication struct {
	AllTables, Insert, Update, Delete, Truncate, ViaRoot bool
	Generated                                            bool // publish_generated_columns = stored (18)
}

type pgTable struct {
	Name        sqlName
	Exists      bool
	Kind        string // relkind
	Persistence string
	Select      bool
	Owner       bool // the user is, or is a member of the role that is
	Published   bool // itself, by its schema, or by FOR ALL TABLES
	Ancestor    *sqlName
	Filter      bool
	List        []string // columns that are published; nil: all
	Unlogged    *sqlName // a partition
	Columns     map[string]pgColumn
}

type pgColumn struct {
	Type      string // without modifiers, of a domain its base
	Generated string // attgenerated: "s", or "v" (18)
}

// pgHolder is a transaction that the slot has to wait for.
type pgHolder struct {
	What string // "pid 123 (application x)", "prepared transaction y"
	Age  time.Duration
	End  string // SQL that ends it
}

// version renders server_version_num.
func (f *pgFacts) version() string { return fmt.Sprintf("%d.%d", f.Version/10000, f.Version%10000) }
