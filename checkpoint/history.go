package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// pastRecord is a checkpoint of the past. What it depended on is stored once for all records that share it.
type pastRecord struct {
	event.Checkpoint
	DependsRef string `json:"depends_ref,omitempty"`
}

// Past is a position that was stored once.
type Past struct {
	At         time.Time        `json:"at"`
	Checkpoint event.Checkpoint `json:"checkpoint"`
}

// EntryID names an entry of the history, by the instant at which it was recorded. No position and no time is written like it.
func (p Past) EntryID() string { return "h" + strconv.FormatInt(p.At.UnixNano(), 36) }

// History lists positions of the past, the oldest first, thinned with age.
func (s *Store) History(pipeline string) ([]Past, error) {
	var out []Past
	err := s.view(func(tx *bbolt.Tx) error {
		out = nil
		b := tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(pipeline))
		if b == nil || b.Bucket([]byte(bucketHistory)) == nil {
			return nil
		}
		depends := b.Bucket([]byte(bucketDepends))
		return b.Bucket([]byte(bucketHistory)).ForEach(func(k, v []byte) error {
			var rec pastRecord
			if err := decodeRecord(placeIn(pipeline, bucketHistory, k), v, &rec); err != nil {
				return err
			}
			if ref := []byte(rec.DependsRef); len(ref) > 0 {
				if err := decodeRecord(placeIn(pipeline, bucketDepends, ref), depends.Get(ref), &rec.Depends); err != nil {
					return err
				}
			}
			at, err := keyTime(k)
			out = append(out, Past{At: at, Checkpoint: rec.Checkpoint})
			return err
		})
	})
	return out, err
}

func keyTime(k []byte) (time.Time, error) {
	if len(k) != 8 {
		return time.Time{}, fmt.Errorf("%w: history key of %d bytes", errDamaged, len(k))
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(k))).UTC(), nil
}

// aged is the time by which the history grows old: now, but for a clock that was put forward since the start. By it all of the history could be
// of no interest any more, and it would be gone when the clock is right again.
func (s *Store) aged(now time.Time) time.Time {
	if at := s.opened.Add(s.passed()); at.Before(now) {
		return at
	}
	return now
}

// record adds cp to the history and thins it, as it is at a time.
func record(tx *bbolt.Tx, pipeline string, cp event.Checkpoint, now, aged time.Time) error {
	b := tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(pipeline))
	history, err := b.CreateBucketIfNotExists([]byte(bucketHistory))
	if err != nil {
		return err
	}
	depends, err := b.CreateBucketIfNotExists([]byte(bucketDepends))
	if err != nil {
		return err
	}
	rec := pastRecord{Checkpoint: cp}
	rec.Accepted = nil
	if len(cp.Depends) > 0 {
		sum := sha256.Sum256(cp.Depends)
		rec.DependsRef, rec.Depends = hex.EncodeToString(sum[:8]), nil
		ref := []byte(rec.DependsRef)
		if depends.Get(ref) == nil {
			v, err := encodeRecord(placeIn(pipeline, bucketDepends, ref), cp.Depends)
			if err != nil {
				return err
			}
			if err := depends.Put(ref, v); err != nil {
				return err
			}
		}
	}
	key := timeKey(now.UnixNano())
	v, err := encodeRecord(placeIn(pipeline, bucketHistory, key), rec)
	if err != nil {
		return err
	}
	if err := history.Put(key, v); err != nil {
		return err
	}
	return thinHistory(pipeline, history, depends, aged)
}

// thinHistory removes what thin does not keep, and what no record depends on any more.
func thinHistory(pipeline string, history, depends *bbolt.Bucket, now time.Time) error {
	var keys [][]byte
	var times []time.Time
	var refs []string
	if err := history.ForEach(func(k, v []byte) error {
		t, err := keyTime(k)
		if err != nil {
			return err
		}
		text, err := recordText(placeIn(pipeline, bucketHistory, k), v)
		if err != nil {
			return err
		}
		var rec struct {
			DependsRef string `json:"depends_ref"`
		}
		if err := json.Unmarshal(text, &rec); err != nil {
			return fmt.Errorf("%w: history record: %w", errDamaged, err)
		}
		keys, times, refs = append(keys, append([]byte(nil), k...)), append(times, t), append(refs, rec.DependsRef)
		return nil
	}); err != nil {
		return err
	}
	used := map[string]bool{}
	removed := false
	for i, keep := range thin(times, now) {
		if keep {
			used[refs[i]] = true
			continue
		}
		removed = true
		if err := history.Delete(keys[i]); err != nil {
			return err
		}
	}
	if !removed {
		return nil
	}
	var unused [][]byte
	if err := depends.ForEach(func(k, _ []byte) error {
		if !used[string(k)] {
			unused = append(unused, append([]byte(nil), k...))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, k := range unused {
		if err := depends.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
