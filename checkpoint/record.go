package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// sumBytes is the length of the checksum in front of a record's text.
const sumBytes = 4

// recordSum covers the key too, so that a record that turns up under another key is noticed.
func recordSum(key, text []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, text)
}

func encodeRecord(key []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	out := make([]byte, sumBytes, sumBytes+len(text))
	binary.BigEndian.PutUint32(out, recordSum(key, text))
	return append(out, text...), nil
}

// recordText gives the JSON text of a record whose checksum is right.
func recordText(key, value []byte) ([]byte, error) {
	if len(value) < sumBytes {
		return nil, fmt.Errorf("%w: record %q has %d bytes", errDamaged, key, len(value))
	}
	text := value[sumBytes:]
	if binary.BigEndian.Uint32(value) != recordSum(key, text) {
		return nil, fmt.Errorf("%w: record %q has a wrong checksum", errDamaged, key)
	}
	return text, nil
}

func decodeRecord(key, value []byte, into any) error {
	text, err := recordText(key, value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		// The checksum was right, so this is what was written: a format that we do not understand.
		return fmt.Errorf("%w: record %q: %w", errDamaged, key, err)
	}
	return nil
}

func timeKey(unixNano int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(unixNano)) }
