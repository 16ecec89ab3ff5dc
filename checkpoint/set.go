package checkpoint

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// Set puts a pipeline's checkpoint where a person wants it, in any direction, with an audit entry in the same commit. The
// checkpoint before goes into the history, so that it can be found again. SavedAt and Version are stamped, Events and Sink
// are kept from before where cp has none, and so are acceptances that wait for the next start; Position, Prefix and Depends are taken as they are (a prefix and what was
// depended on belong to a position, so a caller that moves it leaves them empty unless it knows better).
func (s *Store) Set(ctx context.Context, pipeline string, cp event.Checkpoint, by By) error {
	if cp.IsZero() {
		return faultRefused("set position", pipeline, "no position was given", "name one with --to")
	}
	return s.act(ctx, act{op: "set position", action: ActionSet, moves: true, by: by}, pipeline, func(stored event.Checkpoint) (event.Checkpoint, error) {
		if cp.Events == 0 {
			cp.Events = stored.Events
		}
		if cp.Sink.Kind == "" {
			cp.Sink = stored.Sink
		}
		cp.Accepted = stored.Accepted
		cp.SavedAt, cp.Version = s.now().UTC(), s.version
		return cp, nil
	})
}

// Rewind puts a pipeline back to a position of its past, in one commit with the audit entry. cp is taken as it is but for what belongs
// to now: the sink stays the one that is stored, and acceptances go on waiting. Its count of events goes back with it, so that the history
// goes on telling how many events lie between two of its entries. counts is what the person was told.
func (s *Store) Rewind(ctx context.Context, pipeline string, cp event.Checkpoint, detail string, counts map[string]int64, by By) error {
	a := act{op: "rewind", action: ActionRewind, moves: true, detail: detail, counts: counts, by: by}
	return s.act(ctx, a, pipeline, func(stored event.Checkpoint) (event.Checkpoint, error) {
		if stored.IsZero() {
			return stored, faultRefused("rewind", pipeline, "it has no position yet", "run it once")
		}
		cp.Sink, cp.Accepted = stored.Sink, stored.Accepted
		cp.SavedAt, cp.Version = s.now().UTC(), s.version
		return cp, nil
	})
}

// Import stores an exported checkpoint as the pipeline's, in one commit with the audit entry.
func (s *Store) Import(ctx context.Context, pipeline string, cp event.Checkpoint, detail string, by By) error {
	return s.act(ctx, act{op: "import", action: ActionImport, moves: true, detail: detail, by: by}, pipeline, func(stored event.Checkpoint) (event.Checkpoint, error) {
		cp.Accepted = stored.Accepted
		cp.SavedAt, cp.Version = s.now().UTC(), s.version
		return cp, nil
	})
}

var codeForm = regexp.MustCompile(`^OT[0-9]{4}$`)

// Accept lets a person's acceptance of a safety finding wait for the pipeline's next start, which uses it up. A pipeline
// without a position can have one too.
func (s *Store) Accept(ctx context.Context, pipeline, code string, by By) error {
	if !codeForm.MatchString(code) {
		return faultRefused("accept finding", pipeline, fmt.Sprintf("%q is not a code", code), "name the code that the stop printed, such as OT2013")
	}
	return s.act(ctx, act{op: "accept finding", action: ActionAccept, detail: code, by: by}, pipeline, func(stored event.Checkpoint) (event.Checkpoint, error) {
		if slices.Contains(stored.Accepted, code) {
			return stored, faultRefused("accept finding", pipeline, code+" is accepted already", "start the pipeline, its next connect uses the acceptance up")
		}
		stored.Accepted = append(slices.Clone(stored.Accepted), code)
		return stored, nil
	})
}

// act is something that a person does to a checkpoint.
type act struct {
	op, action, detail string
	// moves: it is the position that changes; the one before goes into the history, and both into the audit's range.
	moves  bool
	counts map[string]int64
	by     By
}

// act carries it out: the change, the history and the audit in one commit, on disk when it returns nil and nothing of it when not.
func (s *Store) act(ctx context.Context, a act, pipeline string, change func(stored event.Checkpoint) (event.Checkpoint, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", a.op, err)
	}
	switch {
	case pipeline == "":
		return faultRefused(a.op, pipeline, "no pipeline was named", "name one with --pipeline")
	case strings.TrimSpace(a.by.Reason) == "":
		return faultRefused(a.op, pipeline, "a reason is required", "say why with --reason; it is kept in the audit")
	case strings.TrimSpace(a.by.Operator) == "":
		return faultRefused(a.op, pipeline, "the operator is not known", "name the person who acts")
	}
	// A position that comes into a new file beside one in which events are parked depends on it from now on. One that cannot be
	// read stops the next start by itself.
	holder, _ := s.dead.holder()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UTC()
	after := event.Checkpoint{}
	err := s.update(a.op, func(tx *bbolt.Tx) error {
		before, err := loadCurrent(tx, pipeline)
		if err != nil {
			return err
		}
		if after, err = change(before); err != nil {
			return err
		}
		if err := putCurrent(tx, pipeline, after); err != nil {
			return err
		}
		entry := Audit{
			Time: now, Operator: a.by.Operator, Action: a.action, Reason: a.by.Reason, Pipeline: pipeline, Detail: a.detail,
			Outcome: OutcomeDone, Counts: a.counts, After: &after,
		}
		if a.moves {
			if err := dropStop(tx, pipeline); err != nil {
				return err
			}
			entry.Range = &Range{From: before.Position.String(), To: after.Position.String()}
		}
		if !before.IsZero() {
			entry.Before = &before
			if a.moves {
				if err := record(tx, pipeline, before, now, s.aged(now)); err != nil {
					return err
				}
			}
		}
		if meta := tx.Bucket([]byte(bucketMeta)); a.moves && holder != "" && meta.Get([]byte(keyParkedID)) == nil {
			if err := meta.Put([]byte(keyParkedID), []byte(holder)); err != nil {
				return err
			}
		}
		return putAudit(tx, entry)
	})
	if err == nil && !after.IsZero() {
		s.markRan([]string{pipeline})
	}
	return err
}
