package binlog

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// Rows that come back from the spill file lie in one buffer per batch, whatever their size: one that had to grow would stay in memory
// as often as it grew, for the sake of the rows before (I11).
func TestSpilledRowsLieInOneBufferPerBatch(t *testing.T) {
	for _, sizes := range [][]int{{900_000}, {100_000}, {60_000, 100_000}, {1_000, 900_000, 120_000, 10}, {1_200_000, 5}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			w.gtid(1)
			w.query("BEGIN")
			w.outboxMap()
			var want []string
			for i := range 24 {
				p := strings.Repeat(string(rune('a'+i%26)), sizes[i%len(sizes)])
				want = append(want, p)
				w.rows(1, p)
			}
			w.xid()
			s, st := feed(t, w, io.EOF)
			st.spillAt = 50_000
			got := 0
			for {
				b, err := s.st.read(t.Context())
				if err != nil {
					break
				}
				require.LessOrEqual(t, len(b.Events), segmentEvents)
				var end uintptr
				for i := range b.Events {
					ev := &b.Events[i]
					require.True(t, want[got] == string(ev.Row[event.Payload].Bytes), "row %d", got)
					require.EqualValues(t, got, ev.Index)
					got++
					for r := range ev.Row {
						v := ev.Row[r].Bytes
						if len(v) == 0 {
							continue
						}
						at := uintptr(unsafe.Pointer(unsafe.SliceData(v)))
						require.True(t, end == 0 || at == end, "row %d of the batch lies elsewhere than those before it", i)
						end = at + uintptr(len(v))
					}
				}
				if b.Release != nil {
					b.Release()
				}
			}
			require.Equal(t, len(want), got)
		})
	}
}
