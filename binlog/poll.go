package binlog

import (
	"context"
	"errors"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// pollEvery is how often the end of the log is asked for.
const pollEvery = 10 * time.Second

// pollEnd asks where the log ends, for Lag. Nothing else of a session needs the metadata connection, so one that was lost is made
// anew here, and until then the lag is unknown.
func (s *Source) pollEnd(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		end, err := s.logSpan(ctx)
		if err != nil {
			end = nil
			var me *mysql.MyError
			if !errors.As(err, &me) || serverGoes(me.Code) {
				s.meta.close()
				if c, cerr := s.connectSame(ctx); cerr == nil {
					if s.prepare(ctx, c, s.server) != nil {
						c.close()
					} else {
						s.meta = c
						end, err = s.logSpan(ctx)
						if err != nil {
							end = nil
						}
					}
				}
			}
		}
		s.end.Store(end)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Source) logSpan(ctx context.Context) (*logSpan, error) {
	e, err := s.logEnd(ctx, s.meta, false)
	if err != nil {
		return nil, err
	}
	end := &logSpan{place: place{e.file, e.pos}}
	if at := s.at.Load(); at != nil && at.file != e.file {
		if end.files, err = s.binlogs(ctx, s.meta); err != nil {
			return nil, err
		}
	}
	return end, nil
}

// serverGoes reports whether an error packet is the server's last word on a connection.
func serverGoes(code uint16) bool {
	switch code {
	case mysql.ER_SERVER_SHUTDOWN, mysql.ER_QUERY_INTERRUPTED, 1927, 4031: // MariaDB: connection killed; MySQL: idle for wait_timeout
		return true
	}
	return false
}
