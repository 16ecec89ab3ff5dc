package doctor

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/outtail/outtail/event"
)

// MySQL is what is needed to look at a MySQL or MariaDB source.
type MySQL struct {
	Kind     string // event.MySQL or event.MariaDB
	Host     string
	Port     int
	User     string
	Database string // default schema of unqualified tables
	Tables   []string
	Columns  event.Columns
	// Connect logs in as a session would, and says whether the connection is encrypted; what it fails with is a Fault.
	Connect func(context.Context) (c *client.Conn, encrypted bool, err error)
	// ReplicaID, ReplicaUUID and ReplicaHost are how outtail presents itself to the server.
	ReplicaID   uint32
	ReplicaUUID string
	ReplicaHost string
	Start       string // now, earliest, gtid, position or empty
	RowLimit    int64
	// StartTimeout is how long a start waits for a server that it does not reach.
	StartTimeout time.Duration
	Stored       Stored
	// Resume asks the server whether a session could go on after the stored position, as a start would: the Safety fault that a
	// start would stop with, or why it could not be asked.
	Resume func(context.Context, event.Checkpoint) error
	// Changes says what became of the tables' columns since the stored position.
	Changes func(context.Context, event.Checkpoint) ([]ColumnsChange, error)
	// Check looks at the server and the tables as a start does: the Fault that it would end with.
	Check func(context.Context) error
	// Writers names what writes to the tables without being named in a statement: triggers, views, routines.
	Writers func(context.Context) ([]string, error)
	// Now is the time, to judge how old the stored position is.
	Now func() time.Time
}

func (o *MySQL) place() string { return net.JoinHostPort(o.Host, strconv.Itoa(o.Port)) }

// CheckMySQL looks at the server. It always gives findings; what could not be asked is one of them.
func CheckMySQL(ctx context.Context, o MySQL) Part {
	if o.Now == nil {
		o.Now = time.Now
	}
	part := Part{Part: "source", Kind: o.Kind, Place: o.place()}
	var l list
	f, refused := collectMySQL(ctx, &o)
	if refused != nil {
		l = append(l, *refused)
	} else {
		l = judgeMySQL(&o, f)
	}
	part.Findings = l
	return part
}

// ColumnsChange is what became of a table's columns since the stored position, where the log does not name them itself.
type ColumnsChange struct {
	Table       string
	Changes     int    // statements in the log that changed them; -1 the log behind the position could not be read to its end
	First       string // where the first one is, FILE:POS
	Stored, Now string // definitions; Now is "" where the table is gone
	Unproved    string // why rows between the first and the last of them cannot be read; "" they can
}

// myFacts is what a server says.
type myFacts struct {
	Vars    map[string]string // global variables; absent: this version has none of the name
	Maria   bool
	Version string
	User    string // CURRENT_USER(), user@host: what grants name
	TLS     bool

	// Missing privileges, in the words of GRANT.
	Missing   []string
	Files     []myFile
	EndFile   string
	EndPos    uint64
	DoDB      string // binlog_do_db
	IgnoreDB  string
	Stored    event.Checkpoint
	StoredErr error
	Resume    error // see MySQL.Resume
	Changes   []ColumnsChange
	ChangeErr error
	Refusal   error // see MySQL.Check
	Writers   []string
	WriterErr error
	Replicas  []myReplica
	ReplicaOf string // host of the server that it replicates from
	Halted    string // why it does not, at the moment
	XA        int    // prepared transactions, -1: not visible
	Tables    []myTable
	Hidden    []hidden
}

type myFile struct {
	Name string
	Size uint64
}

type myReplica struct {
	ID   uint32
	UUID string
	Host string
}

type myTable struct {
	Name     sqlName
	Exists   bool
	View     bool
	Engine   string
	Denied   bool // the user may not select
	Columns  map[string]myColumn
	Triggers []string
	Similar  []string // where it does not exist: tables of this name in other case, or in other schemas
}

func (t *myTable) others() string {
	if len(t.Similar) == 0 {
		return ""
	}
	return " (there is " + strings.Join(t.Similar, ", ") + ")"
}

type myColumn struct {
	Type      string // COLUMN_TYPE
	Data      string // DATA_TYPE
	Charset   string
	Generated bool // VIRTUAL: not in the log
	Nullable  bool
}

// account is the user in GRANT's words.
func (f *myFacts) account() string {
	user, host := f.User, "%"
	for i := len(f.User) - 1; i >= 0; i-- {
		if f.User[i] == '@' {
			user, host = f.User[:i], f.User[i+1:]
			break
		}
	}
	return myLiteral(user) + "@" + myLiteral(host)
}

func (f *myFacts) on(name string) bool {
	return f.Vars[name] == "ON" || f.Vars[name] == "1"
}

func (f *myFacts) number(name string) int64 {
	n, err := strconv.ParseInt(f.Vars[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// retention is how long the server keeps a file after its last write; 0 for ever.
func (f *myFacts) retention() time.Duration {
	if n := f.number("binlog_expire_logs_seconds"); n > 0 {
		return time.Duration(n) * time.Second
	}
	days, err := strconv.ParseFloat(f.Vars["expire_logs_days"], 64)
	if err != nil || days <= 0 {
		return 0
	}
	return time.Duration(days * 24 * float64(time.Hour))
}
