package binlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/outtail/outtail/event"
)

// inflated is a TRANSACTION_PAYLOAD_EVENT (binlog_transaction_compression) that is being read: the events of one transaction,
// compressed, without checksums of their own. They are inflated one by one, because the whole may be large (I11).
type inflated struct {
	src *spill // the file that a giant was put into; may be nil
	in  io.Reader
	buf []byte
}

// maxWindow bounds the memory of one decoder; the server's levels stay below (windowLog 27).
const maxWindow = 128 << 20

// overflow takes what of an event does not fit: rows of ours are read as they come, what has to be inflated goes to a file, other
// events are dropped there.
func (st *stream) overflow(kept []byte) (io.Writer, error) {
	if len(kept) < 1+headerLen {
		return nil, nil
	}
	switch kept[5] {
	case evWriteRows, evWriteRowsV1:
		h, _ := parseHeader(kept[1:])
		return st.widen(h, kept[1:], st.sum)
	case evMariaWriteCompressed1, evMariaWriteCompressed2:
		if st.foreign(evWriteRowsV1, kept[1+headerLen:]) {
			return nil, nil
		}
	case evTransactionPayload:
	default:
		return nil, nil
	}
	if st.s.o.SpillDir == "" {
		return nil, nil
	}
	p, err := newSpill(st.s.o.SpillDir, st.s.o.Pipeline+".payload", st.s.o.SpillLimit, st.s.o.SpillSpace)
	if err != nil {
		return nil, st.spillFault(err)
	}
	st.giant = p
	return &overflowing{st: st, to: p}, nil
}

// overflowing writes what a giant event has beyond the limit, and says what is wrong where it cannot: the connection is not.
type overflowing struct {
	st *stream
	to *spill
}

func (o *overflowing) Write(b []byte) (int, error) {
	if err := o.to.reserve(int64(len(b))); err != nil {
		return 0, o.st.spillFault(err)
	}
	n, err := o.to.f.Write(b)
	if err != nil {
		return n, o.st.spillFault(err)
	}
	return n, nil
}

// giantPayload begins to read an event whose body lies in memory up to the limit and in a file from there on.
func (st *stream) giantPayload(ev []byte, total int) error {
	g := st.giant
	st.giant = nil
	if g == nil {
		return st.spillFault(errSpillFull)
	}
	whole := func() (io.Reader, error) {
		_, err := g.f.Seek(0, io.SeekStart)
		return io.MultiReader(bytes.NewReader(ev), g.f), err
	}
	kept := bytes.Clone(ev)
	ev = kept
	size := total
	if st.sum {
		size -= 4
		r, err := whole()
		if err != nil {
			return st.spillFault(err)
		}
		sum := crc32.NewIEEE()
		var want [4]byte
		if _, err = io.CopyN(sum, r, int64(size)); err == nil {
			_, err = io.ReadFull(r, want[:])
		}
		if err != nil {
			return st.spillFault(err)
		}
		if sum.Sum32() != binary.LittleEndian.Uint32(want[:]) {
			return st.damaged("a transaction payload event fails its checksum")
		}
	}
	compressed, data, ok := parsePayload(ev[headerLen:])
	if !ok {
		return st.damaged("a transaction payload event cannot be read")
	}
	if _, err := g.f.Seek(0, io.SeekStart); err != nil {
		return st.spillFault(err)
	}
	head := len(ev) - len(data)
	in := io.LimitReader(io.MultiReader(bytes.NewReader(data), bufio.NewReaderSize(g.f, 256<<10)), int64(size-head))
	inf := &inflated{src: g, in: in}
	if compressed {
		if err := st.inflater(inf, in); err != nil {
			return err
		}
	}
	st.inflate = inf
	st.spillWorks()
	return nil
}

// payload begins to read a TRANSACTION_PAYLOAD_EVENT.
func (st *stream) payload(_ header, body []byte) error {
	compressed, data, ok := parsePayload(body)
	if !ok {
		return st.damaged("a transaction payload event cannot be read")
	}
	inf := &inflated{}
	data = bytes.Clone(data) // the reader's buffer is not ours beyond this event
	if !compressed {
		inf.in = bytes.NewReader(data)
	} else if err := st.inflater(inf, bytes.NewReader(data)); err != nil {
		return err
	}
	st.inflate = inf
	return nil
}

func (st *stream) inflater(inf *inflated, from io.Reader) error {
	if st.zstd == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return st.damaged("no decoder for a transaction payload event: " + err.Error())
		}
		st.zstd = dec
	}
	if err := st.zstd.Reset(from); err != nil {
		return st.damaged("a transaction payload event cannot be read")
	}
	inf.in = st.zstd
	return nil
}

// parsePayload reads type-length-value fields up to the end mark: 1 size, 2 compression (0 zstd, 255 none), 3 size before
// compression; then the payload.
func parsePayload(b []byte) (compressed bool, data []byte, ok bool) {
	compressed = true
	for {
		kind, rest, ok := lenenc(b)
		if !ok {
			return false, nil, false
		}
		if kind == 0 {
			return compressed, rest, true
		}
		n, rest, ok := lenenc(rest)
		if !ok || n > uint64(len(rest)) {
			return false, nil, false
		}
		v := rest[:n]
		b = rest[n:]
		if kind == 2 {
			c, _, ok := lenenc(v)
			if !ok || c != 0 && c != 255 {
				return false, nil, false
			}
			compressed = c == 0
		}
	}
}

// stepInflated takes in one event of the payload.
func (st *stream) stepInflated() error {
	inf := st.inflate
	if cap(inf.buf) < headerLen {
		inf.buf = make([]byte, headerLen, 16<<10)
	}
	head := inf.buf[:headerLen]
	if _, err := io.ReadFull(inf.in, head); err != nil {
		st.inflate = nil
		_ = inf.src.discard()
		if err == io.EOF {
			return nil
		}
		return st.damaged("a transaction payload event cannot be inflated")
	}
	size := int(binary.LittleEndian.Uint32(head[9:]))
	if size < headerLen {
		return st.damaged("an event inside a transaction payload event is too short")
	}
	keep := min(size, st.rd.limit)
	if cap(inf.buf) < keep {
		inf.buf = append(make([]byte, 0, keep), head...)
	}
	ev := inf.buf[:keep]
	if _, err := io.ReadFull(inf.in, ev[headerLen:]); err != nil {
		return st.damaged("a transaction payload event cannot be inflated")
	}
	h, _ := parseHeader(ev)
	if size > keep {
		rest := io.Discard
		if h.kind == evWriteRows || h.kind == evWriteRowsV1 {
			w, err := st.widen(h, ev, false)
			if err != nil {
				return err
			}
			if w != nil {
				rest = w
			}
		}
		if _, err := io.CopyN(rest, inf.in, int64(size-keep)); event.AsFault(err) != nil {
			return err
		} else if err != nil {
			return st.damaged("a transaction payload event cannot be inflated")
		}
	}
	return st.dispatch(h, ev[headerLen:], size == keep, size)
}
