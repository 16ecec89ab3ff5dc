package event

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kinds of sources.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
	MariaDB  = "mariadb"
)

// LSN is a Postgres log sequence number, a byte address in the WAL.
type LSN uint64

// String prints it as Postgres does, e.g. "0/16B3748".
func (l LSN) String() string {
	return strings.ToUpper(strconv.FormatUint(uint64(l)>>32, 16)) + "/" + strings.ToUpper(strconv.FormatUint(uint64(l)&0xffffffff, 16))
}

// MarshalText writes the text form.
func (l LSN) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the text form.
func (l *LSN) UnmarshalText(b []byte) error {
	v, err := ParseLSN(string(b))
	*l = v
	return err
}

// ParseLSN reads "X/Y" in hex.
func ParseLSN(s string) (LSN, error) {
	hi, lo, ok := strings.Cut(s, "/")
	h, err1 := strconv.ParseUint(hi, 16, 32)
	l, err2 := strconv.ParseUint(lo, 16, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%q is not an LSN such as 0/16B3748", s)
	}
	return LSN(h<<32 | l), nil
}

// Position is a point between transactions of one server's log (design: positions). The zero value means "none". Only
// the fields of its Kind are used; the JSON form is the "source" object of `checkpoint show --json`.
type Position struct {
	Kind string `json:"kind"`

	// Postgres: LSN is the end LSN of the last finished commit.
	SystemID string `json:"system_id,omitempty"`
	Timeline uint32 `json:"timeline,omitempty"`
	Slot     string `json:"slot,omitempty"`
	LSN      LSN    `json:"lsn,omitempty"`

	// MySQL and MariaDB: GTID is the executed set after the position, "" where GTIDs are off; File and Pos are the
	// binlog coordinates after the last XID, COMMIT or standalone statement.
	ServerUUID string `json:"server_uuid,omitempty"`
	ServerID   uint32 `json:"server_id,omitempty"`
	GTID       string `json:"gtid,omitempty"`
	File       string `json:"file,omitempty"`
	Pos        uint64 `json:"pos,omitempty"`
	// Mark is what the source recognises the place and the history by when it comes back; opaque to everybody else.
	Mark string `json:"mark,omitempty"`
}

// IsZero reports whether there is no position.
func (p Position) IsZero() bool { return p.Kind == "" }

// String is for people: logs, errors, `checkpoint show`.
func (p Position) String() string {
	switch p.Kind {
	case "":
		return "none"
	case Postgres:
		return p.LSN.String()
	}
	at := fmt.Sprintf("%s:%d", p.File, p.Pos)
	if p.GTID != "" {
		return p.GTID + " (" + at + ")"
	}
	return at
}

// Prefix says how far inside the transaction after a position everything was acked, filtered or parked.
type Prefix struct {
	Tx   string `json:"tx"`
	Rows uint64 `json:"rows"`
	// Selection is the hash of what selects rows (tables, columns, policy); a prefix of another selection counts as 0:
	// duplicates are allowed, skipping wrong rows is not.
	Selection string `json:"selection,omitempty"`
}

// SinkID is what the sink is: the Kafka cluster id. What one cluster acked may not be in another.
type SinkID struct {
	Kind      string `json:"kind"`
	ClusterID string `json:"cluster_id,omitempty"`
}

// Checkpoint is what is stored of a pipeline: everything before Position, and Prefix of the transaction after it, needs
// no sending any more (I1).
type Checkpoint struct {
	Position Position  `json:"source"`
	Prefix   *Prefix   `json:"prefix"`
	Sink     SinkID    `json:"sink"`
	SavedAt  time.Time `json:"saved_at"`
	Version  string    `json:"outtail"`
	// Events counts the events that passed since the pipeline's first start.
	Events uint64 `json:"events"`
	// Depends is what the position depended on, in the source's own terms (object ids, file identities, table
	// definitions): compared by the source at every connect, opaque to everybody else.
	Depends json.RawMessage `json:"depends,omitempty"`
	// Selection is the hash of what selects rows (tables, columns, policy) in the session that stored this.
	Selection string `json:"selection,omitempty"`
	// Accepted lists safety findings (codes) that a person accepted; each is used up by the next connect.
	Accepted []string `json:"accepted,omitempty"`
}

// IsZero reports whether nothing was stored yet.
func (c Checkpoint) IsZero() bool { return c.Position.IsZero() }
