package checkpoint

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/outtail/outtail/event"
)

// maxSalvage is how large a state file is read: many times what one ever is.
const maxSalvage = 1 << 30

// Salvage finds checkpoints of a pipeline in a state file that cannot be opened, the newest first. It needs no page of the file to be
// sound but those that hold one: a record begins with a checksum of its place and text, so that what is found is what was once written as
// this pipeline's position. A page that is free now may hold an older one, from which more is sent again. It changes nothing.
func Salvage(dir, pipeline string) ([]event.Checkpoint, error) {
	path := filepath.Join(dir, FileName)
	const op = "salvage state"
	f, err := os.Open(path)
	if err != nil {
		return nil, faultUnusable(op, path, err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, faultUnusable(op, path, err)
	case !info.Mode().IsRegular():
		return nil, faultUnusable(op, path, errNotRegular)
	}
	switch free, err := lockShared(f); {
	case err != nil:
		return nil, faultUnusable(op, path, err)
	case !free:
		return nil, faultLocked(dir, "")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSalvage))
	if err != nil {
		return nil, faultUnusable(op, path, err)
	}
	return salvage(b, pipeline), nil
}

func salvage(b []byte, pipeline string) (found []event.Checkpoint) {
	key, place := []byte(keyCurrent), placeCurrent(pipeline)
	for rest := b; ; {
		i := bytes.Index(rest, key) // bbolt keeps a key in front of its value
		if i < 0 {
			break
		}
		rest = rest[i+len(key):]
		if len(rest) < sumBytes {
			break
		}
		var text json.RawMessage
		if json.NewDecoder(bytes.NewReader(rest[sumBytes:])).Decode(&text) != nil {
			continue
		}
		var cp event.Checkpoint
		if decodeRecord(place, rest[:sumBytes+len(text)], &cp) == nil && !cp.IsZero() {
			found = append(found, cp)
		}
	}
	slices.SortStableFunc(found, func(a, b event.Checkpoint) int { return b.SavedAt.Compare(a.SavedAt) })
	return found
}
