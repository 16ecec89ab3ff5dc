package binlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/outtail/outtail/event"
)

// spillAt is how many bytes of an open transaction's rows stay in memory; what comes beyond goes to a file until the end is
// known, and is released from there piece by piece, so that memory is flat whatever the size of the transaction (I11).
const spillAt = 32 << 20

// spill is the file of the running transaction's first rows: decoded rows, each with its length. Nothing needs it after a crash,
// so it is never synced, and it is unlinked at once where the system allows that.
type spill struct {
	f     *os.File
	w     *bufio.Writer
	size  int64
	limit int64
	space *SpillSpace
	buf   []byte
}

// SpillSpace counts what all sources of a process have in their one spill folder. The zero value is ready.
type SpillSpace struct{ used atomic.Int64 }

// errSpillFull: what is written is larger than limits.spill by itself; errSpillShared: together with what others wrote.
var (
	errSpillFull   = errors.New("limits.spill is reached")
	errSpillShared = errors.New("limits.spill is reached by the transactions of all pipelines together")
)

// reserve makes room for n bytes more.
func (p *spill) reserve(n int64) error {
	if p.size+n > p.limit {
		return errSpillFull
	}
	if p.space.used.Add(n) > p.limit {
		p.space.used.Add(-n)
		return errSpillShared
	}
	p.size += n
	return nil
}

func newSpill(dir, pipeline string, limit int64, space *SpillSpace) (*spill, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, pipeline+".rows"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	return &spill{f: f, w: bufio.NewWriterSize(f, 256<<10), limit: limit, space: space}, nil
}

// append writes one row: index, table, fault, then per role a byte (0 unset, 1 NULL, 2 value) and the value.
func (p *spill) append(ev *event.Event) error {
	b := binary.AppendUvarint(p.buf[:0], ev.Index)
	b = appendString(b, ev.Table)
	if ev.Err == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		for _, s := range []string{ev.Err.Code, ev.Err.Op, ev.Err.Place, ev.Err.Text, ev.Err.Hint} {
			b = appendString(b, s)
		}
		cause := ""
		if ev.Err.Err != nil {
			cause = ev.Err.Err.Error()
		}
		b = appendString(b, cause)
	}
	for r := range ev.Row {
		v := &ev.Row[r]
		switch {
		case !v.Set:
			b = append(b, 0)
		case v.Null:
			b = append(b, 1)
		default:
			b = append(b, 2)
			b = binary.AppendUvarint(b, uint64(len(v.Bytes)))
			b = append(b, v.Bytes...)
		}
	}
	p.buf = b
	var n [binary.MaxVarintLen64]byte
	k := binary.PutUvarint(n[:], uint64(len(b)))
	if err := p.reserve(int64(k + len(b))); err != nil {
		return err
	}
	if _, err := p.w.Write(n[:k]); err != nil {
		return err
	}
	_, err := p.w.Write(b)
	return err
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// truncate drops what was written behind an offset.
func (p *spill) truncate(offset int64) error {
	if err := p.w.Flush(); err != nil {
		return err
	}
	if err := p.f.Truncate(offset); err != nil {
		return err
	}
	_, err := p.f.Seek(offset, io.SeekStart)
	p.space.used.Add(offset - p.size)
	p.size = offset
	return err
}

// discard gives the file back.
func (p *spill) discard() error {
	if p == nil || p.f == nil {
		return nil
	}
	err := p.f.Close()
	p.f = nil
	p.space.used.Add(-p.size)
	return err
}

var errSpillDamaged = errors.New("the spill file is damaged")

// spillReader reads the rows back.
type spillReader struct {
	r     *bufio.Reader
	left  int // bytes of the row whose length was read; 0: none was
	buf   []byte
	table string // of the last row: mostly that of the next
}

func (p *spill) reader() (*spillReader, error) {
	if err := p.w.Flush(); err != nil {
		return nil, err
	}
	if _, err := p.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return &spillReader{r: bufio.NewReaderSize(p.f, 256<<10)}, nil
}

// size is what the next row takes in the file, a little more than its values; io.EOF at the end.
func (r *spillReader) size() (int, error) {
	if r.left > 0 {
		return r.left, nil
	}
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return 0, err
	}
	if n == 0 || n > 1<<32 {
		return 0, errSpillDamaged
	}
	r.left = int(n)
	return r.left, nil
}

// next reads one row into ev, its bytes into s; io.EOF at the end.
func (r *spillReader) next(s *segment, ev *event.Event) error {
	n, err := r.size()
	if err != nil {
		return err
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	r.left = 0
	if _, err := io.ReadFull(r.r, b); err != nil {
		return errSpillDamaged
	}
	d := spillBytes{b: b}
	ev.Index = d.uint()
	if name := d.bytes(); string(name) != r.table {
		r.table = string(name)
	}
	ev.Table = r.table
	if d.byte() == 1 {
		f := &event.Fault{Class: event.Record}
		for _, to := range []*string{&f.Code, &f.Op, &f.Place, &f.Text, &f.Hint} {
			*to = string(d.bytes())
		}
		if cause := d.bytes(); len(cause) > 0 {
			f.Err = errors.New(string(cause))
		}
		ev.Err = f
	}
	at := len(s.buf)
	for role := range ev.Row {
		switch d.byte() {
		case 1:
			ev.Row[role] = event.Value{Set: true, Null: true}
		case 2:
			from := len(s.buf)
			s.buf = append(s.buf, d.bytes()...)
			ev.Row[role] = event.Value{Set: true, Bytes: s.buf[from:len(s.buf):len(s.buf)]}
		}
	}
	if d.bad || len(d.b) != 0 {
		return errSpillDamaged
	}
	ev.Size = len(s.buf) - at + eventOverhead
	return nil
}

type spillBytes struct {
	b   []byte
	bad bool
}

func (d *spillBytes) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *spillBytes) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *spillBytes) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// spillOut moves the open transaction's rows from memory to the file.
func (st *stream) spillOut() error {
	if st.s.o.SpillDir == "" {
		return nil
	}
	if st.spill == nil {
		p, err := newSpill(st.s.o.SpillDir, st.s.o.Pipeline, st.s.o.SpillLimit, st.s.o.SpillSpace)
		if err != nil {
			return st.spillFault(err)
		}
		st.spill = p
		st.log.Info("a large transaction goes through the spill file until its end is known", "tx", st.tx.tx.ID, "rows", st.tx.rows)
	}
	next := 0
	err := st.asm.each(func(ev *event.Event) error {
		for next < len(st.tx.saves) && st.tx.saves[next].rows <= ev.Index {
			if st.tx.saves[next].offset < 0 {
				st.tx.saves[next].offset = st.spill.size
			}
			next++
		}
		return st.spill.append(ev)
	})
	if errors.Is(err, errSpillFull) {
		return st.countOnly()
	}
	if err != nil {
		return st.spillFault(err)
	}
	for i := range st.tx.saves {
		if st.tx.saves[i].offset < 0 && st.tx.saves[i].rows == st.tx.rows {
			st.tx.saves[i].offset = st.spill.size
		}
	}
	st.asm.rollback()
	return nil
}

func (st *stream) spillFault(err error) error {
	f := &event.Fault{Code: codeSpill, Class: event.Retry, Op: "keep a large transaction in " + st.s.o.SpillDir, Place: st.here(),
		Text: "the spill file cannot be written", Hint: "free space on that disk; the transaction is read again", Err: err}
	switch {
	case errors.Is(err, errSpillFull):
		f.Class, f.Err = event.Safety, nil
		f.Text = fmt.Sprintf("a compressed transaction is larger than limits.spill (%d bytes)", st.s.o.SpillLimit)
		f.Hint = "raise limits.spill and start again; nothing is lost"
		return f
	case errors.Is(err, errSpillShared):
		f.Err = nil
		f.Text = fmt.Sprintf("limits.spill (%d bytes) is reached by the large transactions of all pipelines together", st.s.o.SpillLimit)
		f.Hint = "it is tried again when those of the others are through; raise limits.spill where the disk has room"
	}
	// Each new session meets the same transaction: what holds it up is said as long as it does, not only between sessions.
	st.s.o.Conditions(conditionSpill, f)
	return f
}

// conditionSpill is the key of the condition that the spill file cannot be written. It ends with the next transaction that went
// through the file, or was taken back.
const conditionSpill = "spill"

func (st *stream) spillWorks() { st.s.o.Conditions(conditionSpill, nil) }

// drain releases a committed transaction from the file.
type drain struct {
	r  *spillReader
	tx *event.Tx
	g  group
}

// startDrain begins to release; the log is not read on before all of it was handed out.
func (st *stream) startDrain(g group) error {
	r, err := st.spill.reader()
	if err != nil {
		return st.spillFault(err)
	}
	st.spillWorks()
	st.drain = &drain{r: r, tx: st.tx.tx, g: g}
	return nil
}

// drainNext hands out what was finished before the transaction, then the transaction's rows by segments; the bound goes with
// the last.
func (st *stream) drainNext() (*event.Batch, error) {
	if some, _ := st.asm.finished(); some {
		return st.handOut()
	}
	seg := st.asm.segment()
	for {
		n, err := st.drain.r.size()
		if errors.Is(err, io.EOF) {
			// No row is left: the bound goes into the assembler, behind this last piece.
			_ = st.spill.discard()
			g := st.drain.g
			st.spill, st.drain = nil, nil
			for _, s := range st.asm.segs { // empty: what was finished is handed out, and the rows went into the file
				st.asm.recycle(s)
			}
			st.asm.segs = append(st.asm.segs[:0], seg)
			st.asm.done = mark{}
			st.bound(g)
			return nil, nil
		}
		if err == nil && !seg.fits(n) {
			return st.asm.batch(seg), nil
		}
		ev := event.Event{Tx: st.drain.tx}
		if err == nil {
			err = st.drain.r.next(seg, &ev)
		}
		if err != nil {
			return nil, st.spillFault(err)
		}
		seg.events = append(seg.events, ev)
	}
}
