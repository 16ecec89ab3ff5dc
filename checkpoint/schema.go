package checkpoint

import (
	"context"
	"encoding/json"

	"github.com/outtail/outtail/event"
)

// AcceptSchema stores what a position depends on as a person changed it, who vouches for a table's columns: detail names the
// table, the place and the columns. The position stays where it is, and so does everything else.
func (s *Store) AcceptSchema(ctx context.Context, pipeline, detail string, depends json.RawMessage, by By) error {
	const op = "accept columns"
	return s.act(ctx, act{op: op, action: ActionSchema, detail: detail, by: by}, pipeline, func(stored event.Checkpoint) (event.Checkpoint, error) {
		if stored.IsZero() {
			return stored, faultRefused(op, pipeline, "it has no position yet", "run it once")
		}
		stored.Depends = depends
		return stored, nil
	})
}
