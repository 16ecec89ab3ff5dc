package wal

import "github.com/outtail/outtail/event"

// Covers implements pipeline.Coverer.
func (s *Source) Covers(p event.Position, tx string) bool { return Covers(p, tx) }

// LogEnd implements pipeline.Coverer.
func (s *Source) LogEnd() event.Position { return s.logEnd }

// Covers reports whether the transaction with this commit LSN ends before a position. A commit's record begins before the end
// that is stored.
func Covers(p event.Position, tx string) bool {
	lsn, err := event.ParseLSN(tx)
	return err != nil || lsn < p.LSN
}
