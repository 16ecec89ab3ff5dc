package binlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/outtail/outtail/event"
)

// Prepared is where rows of prepared XA transactions wait for the decision: ordered keys with values. One goroutine uses it
// at a time. Errors are *event.Fault.
type Prepared interface {
	// ID is the identity of what holds them, "" where there is nothing yet; Create makes it.
	ID() (string, error)
	Create() (string, error)
	// Write puts values and then drops all keys that begin with one of drops; durable, all or nothing, when it returns nil.
	// It keeps nothing of its arguments. Dropping from what does not exist makes nothing.
	Write(puts map[string][]byte, drops []string) error
	// Get gives a value that is the caller's; nil where there is none.
	Get(key string) ([]byte, error)
	// Each visits keys that begin with prefix, in order; the value is valid during the visit.
	Each(prefix string, visit func(key string, value []byte) error) error
}

// kept is a prepared XA transaction: its rows in chunks of a byte stream as spill files have it, and where it was prepared.
type kept struct {
	id      uint64
	XID     string   `json:"xid"`
	Tx      string   `json:"tx"` // what the group of the PREPARE is called
	At      logPoint `json:"at"` // behind the PREPARE
	Rows    uint64   `json:"rows"`
	Bytes   int64    `json:"bytes"`
	Chunks  int      `json:"chunks"`
	Partial bool     `json:"partial,omitempty"` // not written to its end: a crash while it was
	// Decided is the end of the group that decided it. Its rows are needed until the stored position covers that: a re-run
	// from before it meets the decision again.
	Decided *logPoint `json:"decided,omitempty"`

	name xid
	mem  map[string][]byte // chunks that are not written yet
}

// logPoint is a place between groups, by every name that it has.
type logPoint struct {
	GTID   string `json:"gtid,omitempty"` // of the group that ends there; "" where it has none
	Server string `json:"server"`
	File   string `json:"file,omitempty"`
	Pos    uint64 `json:"pos,omitempty"`
}

// reach answers what a position covers.
type reach struct {
	set    *gtidSet
	maria  mariaPos
	server string
	file   string
	pos    uint64
}

func reachOf(p event.Position) reach {
	r := reach{server: serverName(p.ServerUUID, p.ServerID), file: p.File, pos: p.Pos}
	if p.GTID != "" {
		if p.Kind == event.MariaDB {
			r.maria, _ = parseMariaPos(p.GTID)
		} else {
			r.set, _ = parseGTIDSet(p.GTID)
		}
	}
	return r
}

func serverName(uuid string, id uint32) string {
	if uuid != "" {
		return uuid
	}
	return fmt.Sprint(id)
}

// covers tells whether the point lies at or before the position; known is false where no name of the one can be compared
// with one of the other.
func (r reach) covers(p logPoint) (yes, known bool) {
	if p.GTID != "" && r.set != nil {
		g, err := parseGTIDSet(p.GTID)
		return err == nil && r.set.contains(g), err == nil
	}
	if p.GTID != "" && r.maria != nil {
		m, err := parseMariaPos(p.GTID)
		return err == nil && len(r.maria.missing(m)) == 0, err == nil
	}
	if p.File == "" || r.file == "" || r.pos == 0 || r.server != p.Server {
		return false, false
	}
	if c := compareFiles(p.File, r.file); c != 0 {
		return c < 0, true
	}
	return p.Pos <= r.pos, true
}

const (
	chunkBytes = 256 << 10
	// writeBytes is how much may wait to be written, and how much is written at once.
	writeBytes = 4 << 20
	// keptOverhead is what a transaction takes beside its rows.
	keptOverhead = 1 << 10
	sweepEvery   = time.Second
)

var errKeptDamaged = errors.New("what is kept of a prepared XA transaction cannot be read")

func keyOf(kind byte, id uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{kind}, id))
}

func (k *kept) headKey() string { return keyOf('h', k.id) }
func (k *kept) chunkKey(n int) string {
	return string(binary.BigEndian.AppendUint32([]byte(keyOf('r', k.id)), uint32(n)))
}
func (k *kept) size() int64 { return k.Bytes + keptOverhead }

// prepared knows what is kept at the stream's place. It belongs to the session's goroutine.
//
// The store and the position share no transaction. So: what a PREPARE leaves is durable before a bound behind it is handed
// out (I1); a decision is marked before a bound behind it is handed out, so that a name that is used again cannot find the
// rows of before (I2); rows go only when the stored position covers the decision. And at the start of a session everything
// is put back to what it was at the stored position: what was prepared behind it is dropped, since it is read again, and
// what was decided behind it is open.
type prepared struct {
	store Prepared // nil: there is none
	limit int64
	file  string // the store's identity, "" while there is none

	open    []*kept // in the order of their PREPARE
	decided []*kept // in the order of their decisions
	bytes   int64   // of both
	lastID  uint64

	puts  map[string][]byte // to be written with the next flush
	drops []string
	fresh []*kept // whose rows are among puts
	wait  int     // bytes of puts

	confirmed *event.Position // the one that was swept for last
	sweptAt   time.Time
}

// loadPrepared reads what is kept and puts it back to what it was at a position.
func loadPrepared(store Prepared, limit int64, at reach) (*prepared, error) {
	p := &prepared{store: store, limit: limit, puts: map[string][]byte{}}
	if store == nil {
		return p, nil
	}
	var err error
	if p.file, err = store.ID(); err != nil || p.file == "" {
		return p, err
	}
	err = store.Each("h", func(key string, head []byte) error {
		k := &kept{}
		if err := json.Unmarshal(head, k); err != nil || len(key) != 9 {
			return errKeptDamaged
		}
		k.id = binary.BigEndian.Uint64([]byte(key[1:]))
		k.name, _ = parseXIDText([]byte(k.XID))
		p.lastID = max(p.lastID, k.id)
		behind, known := at.covers(k.At)
		if k.Partial || known && !behind {
			p.drop(k)
			return nil
		}
		if k.Decided != nil {
			if done, _ := at.covers(*k.Decided); done {
				p.drop(k)
				return nil
			}
			k.Decided = nil
		}
		p.bytes += k.size()
		p.open = append(p.open, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, p.flush()
}

func (p *prepared) drop(k *kept) { p.drops = append(p.drops, k.headKey(), keyOf('r', k.id)) }

// find gives the open transaction of a name: the one of exactly this name before one that a restart may have shortened.
func (p *prepared) find(x xid) *kept {
	var found *kept
	for _, k := range p.open {
		if k.name == x {
			return k
		}
		if k.name.same(x) {
			found = k
		}
	}
	return found
}

// head queues what is known of a transaction beside its rows.
func (p *prepared) head(k *kept) {
	b, err := json.Marshal(k)
	if err != nil {
		return // strings and numbers always encode
	}
	p.put(k.headKey(), b)
}

func (p *prepared) put(key string, value []byte) {
	p.puts[key] = value
	p.wait += len(key) + len(value)
}

// decide marks a transaction as decided at a point.
func (p *prepared) decide(k *kept, at logPoint) {
	k.Decided = &at
	p.head(k)
	p.open = slices.DeleteFunc(p.open, func(o *kept) bool { return o == k })
	p.decided = append(p.decided, k)
}

// flush makes everything that waits durable.
func (p *prepared) flush() error {
	if len(p.puts) == 0 && len(p.drops) == 0 {
		return nil
	}
	if err := p.store.Write(p.puts, p.drops); err != nil {
		return err
	}
	for _, k := range p.fresh {
		k.mem = nil
	}
	p.fresh = nil
	p.puts, p.drops, p.wait = map[string][]byte{}, nil, 0
	return nil
}

// sweep drops what the stored position has left behind. now sweeps at once, else once a second.
func (p *prepared) sweep(stored *event.Position, reachOf func(event.Position) reach, now bool) error {
	if len(p.decided) == 0 || stored == nil || stored == p.confirmed || !now && time.Since(p.sweptAt) < sweepEvery {
		return nil
	}
	p.confirmed, p.sweptAt = stored, time.Now()
	at, n := reachOf(*stored), len(p.decided)
	p.decided = slices.DeleteFunc(p.decided, func(k *kept) bool {
		done, _ := at.covers(*k.Decided)
		if done {
			p.bytes -= k.size()
			p.drop(k)
		}
		return done
	})
	if len(p.decided) == n {
		return nil
	}
	return p.flush()
}

// fits tells whether so many bytes more may be kept; credit is what will be free once the stream gets to decisions that are
// known to lie ahead.
func (p *prepared) fits(n, credit int64) bool { return p.bytes-credit+n+keptOverhead <= p.limit }

// chunkWriter cuts a stream of rows into chunks; a large one is written as it comes, so that memory stays flat (I11).
type chunkWriter struct {
	p    *prepared
	k    *kept
	ctx  context.Context
	buf  []byte
	late bool // written as it comes
}

func (w *chunkWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(chunkBytes-len(w.buf), len(b))
		w.buf = append(w.buf, b[:k]...)
		b = b[k:]
		if len(w.buf) == chunkBytes {
			if err := w.chunk(); err != nil {
				return n - len(b), err
			}
		}
	}
	return n, nil
}

func (w *chunkWriter) chunk() error {
	if len(w.buf) == 0 {
		return nil
	}
	key := w.k.chunkKey(w.k.Chunks)
	w.p.put(key, w.buf)
	if !w.late {
		w.k.mem[key] = w.buf
	}
	w.k.Chunks++
	w.k.Bytes += int64(len(w.buf))
	w.buf = make([]byte, 0, min(chunkBytes, cap(w.buf)))
	if w.late && w.p.wait >= writeBytes {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		return w.p.flush()
	}
	return nil
}

// chunkReader reads the stream back.
type chunkReader struct {
	p    *prepared
	k    *kept
	next int
	left []byte
}

func (r *chunkReader) Read(b []byte) (int, error) {
	for len(r.left) == 0 {
		if r.next == r.k.Chunks {
			return 0, io.EOF
		}
		key := r.k.chunkKey(r.next)
		v, there := r.k.mem[key]
		if !there {
			var err error
			if v, err = r.p.store.Get(key); err != nil {
				return 0, err
			}
			if v == nil {
				return 0, errKeptDamaged
			}
		}
		r.next++
		r.left = v
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (p *prepared) rows(k *kept) *spillReader {
	return &spillReader{r: bufio.NewReaderSize(&chunkReader{p: p, k: k}, 64<<10)}
}

// rowWriter writes rows as spill files have them.
func rowWriter(w io.Writer) *spill {
	return &spill{w: bufio.NewWriterSize(w, 16<<10), limit: math.MaxInt64, space: &SpillSpace{}}
}
