package binlog

import (
	"context"

	"github.com/outtail/outtail/event"
)

// CheckResume asks the server whether a session could go on after what is stored, exactly as Open would, and changes nothing: the
// Safety fault that Open would stop with, another error where the server could not be asked, or nil.
func CheckResume(ctx context.Context, o Options, from event.Checkpoint) error {
	s, c, err := lookAt(ctx, o)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = s.resumeAfter(ctx, from)
	return err
}

// lookAt connects to look at the server beside a session that may run.
func lookAt(ctx context.Context, o Options) (*Source, *conn, error) {
	s, err := New(o)
	if err != nil {
		return nil, nil, err
	}
	s.seed += "/resume" // a running session's own short looks are not to be ended by ours
	c, err := s.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if s.server, err = s.ask(ctx, c); err == nil {
		s.folded = s.server.foldNames
		s.server.files, err = s.binlogs(ctx, c)
	}
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return s, c, nil
}

// resumption is how a session goes on after a stored position.
type resumption struct {
	*facts
	from origin
	keep bool // a stored prefix still counts
}

// resumeAfter looks up what deciding needs, and decides (I5).
func (s *Source) resumeAfter(ctx context.Context, from event.Checkpoint) (resumption, error) {
	r := resumption{facts: &facts{kind: s.o.Kind, stored: from.Position, dep: parseDepends(from.Depends), server: s.server, accepted: from.Accepted}}
	if err := s.look(ctx, r.facts); err != nil {
		return r, err
	}
	var stop *finding
	if r.from, r.keep, stop = resume(r.facts); stop != nil {
		return r, s.fault(stop.code, event.Safety, "resume after "+from.Position.String(), stop.text, s.ways(stop.code, stop.to...))
	}
	return r, nil
}
