package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

// pieces is a connection whose reads end where it is told.
type pieces struct {
	data []byte
	next func() int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := min(p.next(), len(b), len(p.data))
	copy(b, p.data[:n])
	p.data = p.data[n:]
	return n, nil
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }

func testReader(data []byte, limit int, next func() int) *reader {
	return &reader{
		conn: &pieces{data, next}, dec: testDecoder(outboxColumns(), limit), maxFrame: 2*limit + 1<<10, replied: func() {},
	}
}

// drain reads to the end; it gives what ended it.
func drain(s *reader, l *load) error {
	for {
		if err := s.parse(l); err != nil {
			return err
		}
		if err := s.fill(context.Background(), time.Time{}); err != nil {
			return err
		}
	}
}

func all() int { return 1 << 30 }

func TestFramesAreTheSameHoweverTheyArrive(t *testing.T) {
	const limit = 150 << 10
	var data []byte
	add := func(m message) { data = append(data, wrap(m)...) }
	add(begin(100))
	add(outboxRelation)
	add(relationMsg(61, "public", "other", column{"x", 25}))
	type row struct {
		id             string
		payload, noise int // noise is a column that is not mapped
	}
	rows := []row{{"small", 10, 5}, {"empty", 0, 0}, {"buffered", 140 << 10, 5}, {"beyond", 500 << 10, 5}, {"after", 20, 5}, {"long id", 5, 5},
		{"noise", 100 << 10, 700 << 10}, {"both", 200 << 10, 700 << 10}}
	rows[5].id = strings.Repeat("i", 5<<10)
	for _, r := range rows {
		add(insertMsg(61, 1).value(strings.Repeat("f", 3*r.payload)))
		add(insertMsg(60, 4).value(r.id).value(strings.Repeat("n", r.noise)).value(strings.Repeat("p", r.payload)).null())
		data = append(data, keepaliveFrame(999, 0)...)
	}
	add(commit(100, 120))
	data = append(data, keepaliveFrame(130, 1)...)

	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 7, 100, 4 << 10, 32 << 10, 1 << 20}), 1, 12).Draw(t, "sizes")
		i := 0
		s := testReader(data, limit, func() int {
			i++
			n := sizes[i%len(sizes)]
			if n < 100 && i%50 > 10 {
				n = 40 << 10 // small pieces are slow; some are enough
			}
			return n
		})
		asked := 0
		s.replied = func() { asked++ }
		l := testLoad()
		require.ErrorIs(t, drain(s, l), io.EOF)
		require.Len(t, l.batch.Events, len(rows))
		for i, r := range rows {
			e := &l.batch.Events[i]
			require.EqualValues(t, i, e.Index)
			require.Equal(t, r.id, string(e.Row[event.ID].Bytes))
			if r.payload > limit {
				require.Equal(t, CodeRowTooLarge, e.Err.Code)
				require.Equal(t, r.payload < 2*limit, e.Row[event.Payload].Set, "what is far beyond the limit is not kept")
				continue
			}
			require.Nil(t, e.Err)
			require.Len(t, e.Row[event.Payload].Bytes, r.payload)
		}
		require.Equal(t, []event.Bound{{After: len(rows), At: 130}}, l.batch.Bounds)
		require.Equal(t, 1, asked)
		require.LessOrEqual(t, len(s.buf), 1<<20, "what is not wanted is not buffered")
	})
}

func wrap(m message) []byte { return data(m) }

func TestTheBufferShrinksAgain(t *testing.T) {
	var b []byte
	b = append(b, data(begin(1))...)
	b = append(b, data(outboxRelation)...)
	b = append(b, data(outboxRow("big", strings.Repeat("x", 3<<20)))...)
	for i := range 3000 {
		b = append(b, data(outboxRow(fmt.Sprint(i), strings.Repeat("x", 1000)))...)
	}
	s := testReader(b, 4<<20, func() int { return 64 << 10 })
	l := testLoad()
	require.ErrorIs(t, drain(s, l), io.EOF)
	require.Len(t, l.batch.Events, 3001)
	require.Len(t, s.buf, readSize)
}

func TestWhatEndsAStream(t *testing.T) {
	sqlstate := func(kind byte, code string) []byte {
		body := message{}.u8('S').text("ERROR").u8('C').text(code).u8('M').text("text").u8('D').text("detail").u8(0)
		return append(message{kind}.u32(uint32(len(body)+4)), body...)
	}
	for name, c := range map[string]struct {
		frame []byte
		code  string
		class event.Class
	}{
		"the connection":               {nil, CodeConnectionLost, event.Retry},
		"the server ends the copy":     {[]byte{'c', 0, 0, 0, 4}, CodeConnectionLost, event.Retry},
		"shutdown":                     {sqlstate('E', "57P01"), CodeServerError, event.Retry},
		"removed log":                  {sqlstate('E', "58P01"), CodeLogRemoved, event.Safety},
		"an invalidated slot":          {sqlstate('E', "55000"), CodeSlotInvalidated, event.Safety},
		"no publication, up to 17":     {sqlstate('E', "42704"), CodePublicationGone, event.Safety},
		"no publication, from 18 on":   {sqlstate('N', "55000"), CodePublicationGone, event.Safety},
		"a privilege":                  {sqlstate('E', "42501"), CodeServerError, event.Environment},
		"a message of another kind":    {[]byte{'T', 0, 0, 0, 4}, CodeProtocol, event.Internal},
		"a length that cannot be":      {[]byte{'d', 0, 0, 0, 3}, CodeProtocol, event.Internal},
		"a replication message unlike": {[]byte{'d', 0, 0, 0, 5, 'x'}, CodeProtocol, event.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			var b []byte
			for _, m := range []message{begin(1), outboxRelation, outboxRow("a", "1"), commit(1, 20)} {
				b = append(b, data(m)...)
			}
			warning := sqlstate('N', "01000") // any other notice means nothing
			b = append(append(b, warning...), c.frame...)
			s := testReader(b, 1000, all)
			l := testLoad()
			err := drain(s, l)
			require.Len(t, l.batch.Events, 1, "what came before comes first")
			src := &Source{o: Options{Host: "h", Slot: "s", Publication: "p"}}
			f := faultOf(t, src.streamFault(&session{read: s, err: err, watch: &watcher{}}))
			require.Equal(t, c.code, f.Code)
			require.Equal(t, c.class, f.Class)
			require.NotContains(t, f.Error(), "detail", "a detail may quote rows")
			if c.class == event.Safety {
				require.Contains(t, f.Text, "0/14", "the gap is named")
			}
		})
	}
}

func TestAnErrorOfTheServerKeepsItsState(t *testing.T) {
	body := message{}.u8('S').text("FATAL").u8('C').text("57P01").u8('M').text("bye").u8(0)
	var pg *pgconn.PgError
	require.True(t, errors.As(serverError(body), &pg))
	require.Equal(t, "57P01", pg.Code)
	require.ErrorIs(t, serverError([]byte("S")), io.ErrUnexpectedEOF)
}

func FuzzReader(f *testing.F) {
	var b []byte
	for _, m := range []message{begin(1), outboxRelation, outboxRow("a", "1"), commit(1, 20)} {
		b = append(b, data(m)...)
	}
	f.Add(b, 7)
	f.Add(append(bytes.Clone(b), keepaliveFrame(50, 1)...), 1000)
	f.Add([]byte("E\x00\x00\x00\x06S\x00"), 3)
	f.Add(append(append(append(data(begin(1)), data(outboxRelation)...), 'd', 0, 8, 0, 0, 'w'), make([]byte, 300)...), 50)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		s := testReader(b, 1<<10, func() int { return max(1, n) })
		_ = drain(s, testLoad())
	})
}
