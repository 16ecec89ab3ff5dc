package kafka

import (
	"math/bits"
	"unicode/utf8"

	"github.com/outtail/outtail/event"
)

// batchOverhead is the size of a record batch (magic 2) without records: base offset 8, length 4, leader epoch 4, magic 1,
// CRC 4, attributes 2, last offset delta 4, two timestamps 16, producer id 8, epoch 2, sequence 4, count 4. Brokers compare
// all of it with max.message.bytes (Kafka protocol guide, "Record Batch").
const batchOverhead = 61

// defaultLimit is Kafka's default max.message.bytes, used where DescribeConfigs is refused.
const defaultLimit = 1000012

// batchSize is the size of a batch that holds this message alone, uncompressed.
func batchSize(m *event.Message) int {
	n := 1 + 1 + 1 // attributes, timestamp delta 0, offset delta 0
	n += sized(m.Key, m.Key == nil) + sized(m.Value, m.Value == nil)
	n += varint(len(m.Headers))
	for i := range m.Headers {
		h := &m.Headers[i]
		n += varint(len(h.Name)) + len(h.Name) + sized(h.Value, h.Value == nil)
	}
	return batchOverhead + varint(n) + n
}

func sized(b []byte, null bool) int {
	if null {
		return 1 // -1 in zigzag
	}
	return varint(len(b)) + len(b)
}

// varint is the length of a non-negative number as zigzag varint.
func varint(n int) int {
	return (bits.Len64(uint64(n)<<1|1) + 6) / 7
}

// payload is what a message counts against MaxBufferedBytes.
func payload(m *event.Message) int64 {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Name) + len(m.Headers[i].Value)
	}
	return int64(n)
}

// validHeaders is the protocol's rule: a header's name is text.
func validHeaders(hs []event.Header) bool {
	for i := range hs {
		if !utf8.ValidString(hs[i].Name) {
			return false
		}
	}
	return true
}
