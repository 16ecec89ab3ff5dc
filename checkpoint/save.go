package checkpoint

import (
	"context"
	"fmt"
	"sort"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// Load gives what is stored of a pipeline; the zero checkpoint where nothing is. One that has no position may still carry
// accepted findings.
func (s *Store) Load(pipeline string) (event.Checkpoint, error) {
	var cp event.Checkpoint
	err := s.view(func(tx *bbolt.Tx) (err error) {
		cp, err = loadCurrent(tx, pipeline)
		return err
	})
	return cp, err
}

// Save stores checkpoints of any number of pipelines in one commit; they are on disk when it returns nil, and not stored
// when it does not (I4). SavedAt and Version are filled in where they are empty. Accepted findings are those of the entry
// and no others, so a save without any uses up what was accepted: an acceptance belongs to the connect that it allowed,
// and must not lie in wait for another finding of the same code.
//
// A position that went back is refused as a fault of ours (only Set goes back): stored, it would send again without
// anybody having asked for it.
func (s *Store) Save(ctx context.Context, entries map[string]event.Checkpoint) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save positions: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := sortedKeys(entries)
	now := s.now().UTC()
	recorded := make([]string, 0, len(names))
	err := s.update("save position", func(tx *bbolt.Tx) error {
		for _, name := range names {
			cp := entries[name]
			stored, err := loadCurrent(tx, name)
			if err != nil {
				return err
			}
			if text := wentBack(stored, cp); text != "" {
				return faultBackwards(name, text)
			}
			if cp.SavedAt.IsZero() {
				cp.SavedAt = now
			}
			if cp.Version == "" {
				cp.Version = s.version
			}
			if err := putCurrent(tx, name, cp); err != nil {
				return err
			}
			if err := dropStop(tx, name); err != nil {
				return err
			}
			if last, ok := s.lastRec[name]; ok && !historyDue(last, now) {
				continue
			}
			if err := record(tx, name, cp, now, s.aged(now)); err != nil {
				return err
			}
			recorded = append(recorded, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range recorded {
		s.lastRec[name] = now
	}
	s.markRan(names)
	return nil
}

// wentBack says in which way next lies before stored, as far as that can be told without knowing the server. A person's
// acceptance may have put the source somewhere else, so it lifts the comparison for the one save that uses it up.
func wentBack(stored, next event.Checkpoint) string {
	switch {
	case next.IsZero():
		return "a checkpoint without a position was to be saved"
	case stored.IsZero(), len(stored.Accepted) > 0:
		return ""
	case next.Events < stored.Events:
		return fmt.Sprintf("the count of events went back from %d to %d", stored.Events, next.Events)
	}
	a, b := stored.Position, next.Position
	if a.Kind != b.Kind {
		return ""
	}
	switch a.Kind {
	case event.Postgres:
		if a.SystemID == b.SystemID && a.Timeline == b.Timeline && a.Slot == b.Slot && b.LSN < a.LSN {
			return fmt.Sprintf("the position went back from %s to %s", a, b)
		}
	default:
		if a.ServerUUID == b.ServerUUID && a.ServerID == b.ServerID && a.File == b.File && b.Pos < a.Pos {
			return fmt.Sprintf("the position went back from %s to %s", a, b)
		}
	}
	return ""
}

func loadCurrent(tx *bbolt.Tx, pipeline string) (event.Checkpoint, error) {
	var cp event.Checkpoint
	b := tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(pipeline))
	if b == nil {
		return cp, nil
	}
	v := b.Get([]byte(keyCurrent))
	if v == nil {
		return cp, nil
	}
	return cp, decodeRecord(placeCurrent(pipeline), v, &cp)
}

func putCurrent(tx *bbolt.Tx, pipeline string, cp event.Checkpoint) error {
	b, err := tx.Bucket([]byte(bucketPipelines)).CreateBucketIfNotExists([]byte(pipeline))
	if err != nil {
		return err
	}
	v, err := encodeRecord(placeCurrent(pipeline), cp)
	if err != nil {
		return err
	}
	return b.Put([]byte(keyCurrent), v)
}

// all lists the pipelines that have a position.
func all(tx *bbolt.Tx) (map[string]event.Checkpoint, error) {
	out := map[string]event.Checkpoint{}
	err := tx.Bucket([]byte(bucketPipelines)).ForEachBucket(func(name []byte) error {
		cp, err := loadCurrent(tx, string(name))
		if err == nil && !cp.IsZero() {
			out[string(name)] = cp
		}
		return err
	})
	return out, err
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
