package binlog

import (
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is stored of an event stays comparable: the CRC-32 of its time, type, server and the first 64 bytes of its body.
func TestEventSumIsAPlainCRC(t *testing.T) {
	h := header{at: 0x01020304, kind: evGTID, server: 0x0a0b0c0d}
	body := make([]byte, 80)
	for i := range body {
		body[i] = byte(i)
	}
	want := crc32.ChecksumIEEE(append([]byte{4, 3, 2, 1, evGTID, 0x0d, 0x0c, 0x0b, 0x0a}, body[:64]...))
	require.Equal(t, want, eventSum(h, body))
	require.Zero(t, testing.AllocsPerRun(10, func() { eventSum(h, body) }))
}
