package wal

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// The receive buffer is used again while a slow sink still holds what was read from it.
func TestB050ValuesStayWhatTheyWereWhileLaterOnesAreRead(t *testing.T) {
	const rows = 3000
	stream := append(data(begin(100)), data(outboxRelation)...)
	for i := range rows {
		payload := strings.Repeat(fmt.Sprint(i%10), i*37%3000)
		stream = append(stream, data(outboxRow(fmt.Sprintf("%d %08x", i, crc32.ChecksumIEEE([]byte(payload))), payload))...)
	}
	stream = append(stream, data(commit(100, 120))...)
	i := 0
	s := testReader(stream, 1<<20, func() int { i++; return 100 + i*7919%40000 })
	var held []*load
	for {
		l := testLoad()
		err := s.parse(l)
		held = append(held, l)
		if err == nil {
			err = s.fill(context.Background(), time.Time{})
		}
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	n := 0
	for _, l := range held {
		for _, e := range l.batch.Events {
			require.Equal(t, fmt.Sprintf("%d %08x", n, crc32.ChecksumIEEE(e.Row[event.Payload].Bytes)), string(e.Row[event.ID].Bytes))
			n++
		}
	}
	require.Equal(t, rows, n)
}

func TestB101PositionsHave64Bits(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 1000), testLoad()
	d.at = 0xFFFFFFF0
	decodeAll(t, d, l, begin(0xFFFFFFFF), outboxRelation, outboxRow("a", "{}"), commit(0xFFFFFFFF, 0x1_00000028),
		begin(0x16_B374D848), outboxRow("b", "{}"), commit(0x16_B374D848, 0x16_B374D878))
	d.keepalive(l, 0xFF_FFFFFFFF)
	d.keepalive(l, 0x16_00000000) // never back
	require.Equal(t, "0/FFFFFFFF", l.batch.Events[0].Tx.ID)
	require.Equal(t, "16/B374D848", l.batch.Events[1].Tx.ID)
	require.Equal(t, []event.Bound{{After: 1, At: 0x1_00000028}, {After: 2, At: 0xFF_FFFFFFFF}}, l.batch.Bounds)
	for _, text := range []string{"0/FFFFFFFF", "1/0", "16/B374D848", "FF/FFFFFFFF"} {
		at, err := event.ParseLSN(text)
		require.NoError(t, err)
		require.Equal(t, text, at.String())
	}

	o, n, f := world()
	f.End, f.Slot = 0x17_00000000, slotAt(0x16_00000000)
	cp := stored(o, n, f)
	cp.Position.LSN = 0xFFFFFFFF // less than 16/0, whatever its low half is
	_, fault := decide(o, n, cp, f)
	require.Equal(t, CodeSlotAdvanced, fault.Code)
	cp.Position.LSN = 0x16_B374D848
	p, fault := decide(o, n, cp, f)
	require.Nil(t, fault)
	require.EqualValues(t, 0x16_B374D848, p.At)
}
