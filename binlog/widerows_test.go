package binlog

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// events reads to the end of what was fed.
func eventsOf(t *testing.T, s *Source) (out []event.Event, err error) {
	for {
		b, err := s.st.read(t.Context())
		if err != nil {
			return out, err
		}
		out = append(out, b.Events...)
	}
}

// A rows event may be larger than what the reader keeps because it holds many rows (binlog_row_event_max_size): each is taken in.
func TestManyRowsInOneEventBeyondTheReadersLimit(t *testing.T) {
	for _, size := range []int{1000, 7, 1} {
		w := &logWriter{}
		w.file("binlog.000001")
		w.gtid(1)
		w.query("BEGIN")
		w.outboxMap()
		long := make([]string, 400)
		for i := range long {
			long[i] = strings.Repeat(string(rune('a'+i%26)), 900+i%90)
		}
		long[7], long[8] = "", strings.Repeat("x", 1001)
		w.rows(1, long...)
		w.xid()
		var in io.Reader = bytes.NewReader(w.Bytes())
		switch size {
		case 1:
			in = iotest.OneByteReader(in)
		case 7:
			in = iotest.HalfReader(in)
		}
		s, st := feed(t, in, io.EOF, func(o *Options) { o.RowLimit = 1000 })
		require.Less(t, st.rd.limit, w.Len()/3)
		events, _ := eventsOf(t, s)
		require.Len(t, events, len(long))
		for i, e := range events {
			require.EqualValues(t, i, e.Index)
			require.Equal(t, string(rune('0'+(i+1)/100))+string(rune('0'+(i+1)/10%10))+string(rune('0'+(i+1)%10)), padded(string(e.Row[event.ID].Bytes)))
			if i == 8 {
				require.Equal(t, codeTooLarge, e.Err.Code)
				require.Contains(t, e.Err.Place, "id 9")
				require.NotContains(t, e.Err.Error(), "xx")
				require.False(t, e.Row[event.Payload].Set)
				continue
			}
			require.Nil(t, e.Err)
			require.Equal(t, long[i], string(e.Row[event.Payload].Bytes), i)
		}
	}
}

func padded(s string) string { return strings.Repeat("0", 3-len(s)) + s }

// A row beyond limits.row is not kept in memory; it has its id even where that comes behind the long value.
func TestARowBeyondTheLimitHasItsIDWhereverThatStands(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.gtid(1)
	w.query("BEGIN")
	w.tableMap(9, "shop", "outbox", []byte{typeBlob, typeLongLong}, []byte{4})
	body := []byte{9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff}
	for i, n := range []int{10, 300_000, 20} {
		body = append(body, 0)
		body = binary.LittleEndian.AppendUint32(body, uint32(n))
		body = append(body, bytes.Repeat([]byte{'x'}, n)...)
		body = binary.LittleEndian.AppendUint64(body, uint64(i+41))
	}
	w.event(evWriteRows, 0, body)
	w.xid()
	for _, broken := range []bool{false, true} {
		log := bytes.Clone(w.Bytes())
		if broken {
			log[len(log)-200] ^= 1 // inside of the event's last bytes
		}
		s, _ := feed(t, bytes.NewReader(log), io.EOF, func(o *Options) { o.RowLimit = 1000 })
		s.known[&s.tables[0]].proved = definition{{"payload", "longtext", "utf8mb4"}, {"id", "bigint", ""}}
		events, err := eventsOf(t, s)
		if broken {
			require.Empty(t, events, "nothing of an event that fails its checksum is handed out")
			require.Equal(t, codeDamaged, event.AsFault(err).Code)
			continue
		}
		require.Len(t, events, 3)
		for i, e := range events {
			require.Equal(t, []string{"41", "42", "43"}[i], string(e.Row[event.ID].Bytes))
			require.Equal(t, i == 1, e.Err != nil)
		}
		require.Contains(t, events[1].Err.Place, "id 42")
	}
}
