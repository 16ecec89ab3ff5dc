package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// sumBytes is the length of the checksum in front of a record's text.
const sumBytes = 4

// place names where a record is: "/" and the name of each bucket, "/" and its key.
func place(path, key []byte) []byte {
	return append(append(append(make([]byte, 0, len(path)+1+len(key)), path...), '/'), key...)
}

// Places of the records.
func placeCurrent(pipeline string) []byte {
	return []byte("/" + bucketPipelines + "/" + pipeline + "/" + keyCurrent)
}

func placeStop(pipeline string) []byte {
	return []byte("/" + bucketPipelines + "/" + pipeline + "/" + keyStop)
}

func placeIn(pipeline, bucket string, key []byte) []byte {
	return place([]byte("/"+bucketPipelines+"/"+pipeline+"/"+bucket), key)
}

func placeAudit(key []byte) []byte { return place([]byte("/"+bucketAudit), key) }

// recordSum covers the place too, so that a record that turns up under another name is noticed: a damaged name would
// otherwise make a pipeline look as if it never ran (I5).
func recordSum(place, text []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(place, table), table, text)
}

func encodeRecord(place []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	out := make([]byte, sumBytes, sumBytes+len(text))
	binary.BigEndian.PutUint32(out, recordSum(place, text))
	return append(out, text...), nil
}

// recordText gives the JSON text of a record whose checksum is right.
func recordText(place, value []byte) ([]byte, error) {
	if len(value) < sumBytes {
		return nil, fmt.Errorf("%w: record %q has %d bytes", errDamaged, place, len(value))
	}
	text := value[sumBytes:]
	if binary.BigEndian.Uint32(value) != recordSum(place, text) {
		return nil, fmt.Errorf("%w: record %q has a wrong checksum", errDamaged, place)
	}
	return text, nil
}

func decodeRecord(place, value []byte, into any) error {
	text, err := recordText(place, value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		// The checksum was right, so this is what was written: a format that we do not understand.
		return fmt.Errorf("%w: record %q: %w", errDamaged, place, err)
	}
	return nil
}

func timeKey(unixNano int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(unixNano)) }
