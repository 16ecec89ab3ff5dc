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
	return s.act(ctx, "set position", ActionSet, pipeline, "", by, func(stored event.Checkpoint) (event.Checkpoint, error) {
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

var codeForm = regexp.MustCompile(`^OT[0-9]{4}$`)

// Accept lets a person's acceptance of a safety finding wait for the pipeline's next start, which uses it up. A pipeline
// without a position can have one too.
func (s *Store) Accept(ctx context.Context, pipeline, code string, by By) error {
	if !codeForm.MatchString(code) {
		return faultRefused("accept finding", pipeline, fmt.Sprintf("%q is not a code", code), "name the code that the stop printed, such as OT2013")
	}
	return s.act(ctx, "accept finding", ActionAccept, pipeline, code, by, func(stored event.Checkpoint) (event.Checkpoint, error) {
		if slices.Contains(stored.Accepted, code) {
			return stored, faultRefused("accept finding", pipeline, code+" is accepted already", "start the pipeline, its next connect uses the acceptance up")
		}
		stored.Accepted = append(slices.Clone(stored.Accepted), code)
		return stored, nil
	})
}

func (s *Store) act(
	ctx context.Context, op, action, pipeline, detail string, by By, change func(stored event.Checkpoint) (event.Checkpoint, error),
) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	switch {
	case pipeline == "":
		return faultRefused(op, pipeline, "no pipeline was named", "name one with --pipeline")
	case strings.TrimSpace(by.Reason) == "":
		return faultRefused(op, pipeline, "a reason is required", "say why with --reason; it is kept in the audit")
	case strings.TrimSpace(by.Operator) == "":
		return faultRefused(op, pipeline, "the operator is not known", "name the person who acts")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UTC()
	after := event.Checkpoint{}
	err := s.update(op, func(tx *bbolt.Tx) error {
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
		entry := Audit{Time: now, Operator: by.Operator, Action: action, Reason: by.Reason, Pipeline: pipeline, Detail: detail, Outcome: OutcomeDone, After: &after}
		if !before.IsZero() {
			entry.Before = &before
			if action == ActionSet {
				if err := record(tx, pipeline, before, now); err != nil {
					return err
				}
			}
		}
		return putAudit(tx, entry)
	})
	if err == nil && !after.IsZero() {
		s.markRan([]string{pipeline})
	}
	return err
}
