package binlog

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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
	end := &logSpan{place: place{e.file, e.pos}, left: -1}
	at, needed := s.at.Load(), s.needed()
	if at != nil && at.file != e.file || needed != nil && needed.file != e.file {
		if end.files, err = s.binlogs(ctx, s.meta); err != nil {
			return nil, err
		}
	}
	if needed != nil {
		end.left, err = s.retentionLeft(ctx, needed.file, end)
	}
	return end, err
}

// needed is where the log begins that is still to be kept for us: behind what is stored.
func (s *Source) needed() *place {
	if p := s.confirmed.Load(); p != nil && p.File != "" {
		return &place{p.File, p.Pos}
	}
	return s.at.Load()
}

// retentionLeft is how long it takes until the server purges a file; -1 where it never does or it is not known. The server counts
// from the last write to the file, which was when the next one was begun. The newest file is never purged: there the whole time is left.
func (s *Source) retentionLeft(ctx context.Context, file string, end *logSpan) (time.Duration, error) {
	r, err := s.meta.query(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_expire_logs_seconds','expire_logs_days','binlog_expire_logs_auto_purge')")
	if err != nil {
		return -1, err
	}
	vars := map[string]string{}
	for i := range r.RowNumber() {
		name, _ := r.GetString(i, 0)
		value, _ := r.GetString(i, 1)
		vars[strings.ToLower(name)] = value
	}
	keep := retention(vars)
	if keep <= 0 || file == end.file {
		return keep, nil
	}
	next := slices.IndexFunc(end.files, func(f binlogFile) bool { return f.name == file }) + 1
	if next == 0 || next == len(end.files) {
		return -1, nil
	}
	if s.ended.file != file || s.ended.next != end.files[next].name {
		stamp, err := s.stampOf(ctx, end.files[next].name)
		if err != nil {
			s.log.Debug("how long the log is kept is not known", "file", file, "error", err)
			return -1, nil
		}
		s.ended = lastWrite{file, end.files[next].name, stamp}
	}
	now, err := s.value(ctx, s.meta, "SELECT UNIX_TIMESTAMP()")
	if err != nil {
		return -1, err
	}
	seconds, err := strconv.ParseInt(now, 10, 64)
	if err != nil {
		return -1, nil
	}
	return max(0, keep-time.Duration(seconds-int64(s.ended.stamp))*time.Second), nil
}

// lastWrite is when a file was written to last, by the stamp of the one that follows it.
type lastWrite struct {
	file, next string
	stamp      uint32
}

// retention is how long the server keeps a file after its last write; -1 for ever.
func retention(vars map[string]string) time.Duration {
	if vars["binlog_expire_logs_auto_purge"] == "OFF" {
		return -1
	}
	if n, _ := strconv.ParseInt(vars["binlog_expire_logs_seconds"], 10, 64); n > 0 {
		return time.Duration(n) * time.Second
	}
	if days, _ := strconv.ParseFloat(vars["expire_logs_days"], 64); days > 0 {
		return time.Duration(days * 24 * float64(time.Hour))
	}
	return -1
}

// serverGoes reports whether an error packet is the server's last word on a connection.
func serverGoes(code uint16) bool {
	switch code {
	case mysql.ER_SERVER_SHUTDOWN, mysql.ER_QUERY_INTERRUPTED, 1927, 4031: // MariaDB: connection killed; MySQL: idle for wait_timeout
		return true
	}
	return false
}

// serverShort reports whether an error packet says that the server lacks something now, which passes.
func serverShort(code uint16) bool {
	switch code {
	case mysql.ER_CON_COUNT_ERROR, mysql.ER_OUT_OF_RESOURCES, mysql.ER_OUTOFMEMORY, mysql.ER_DISK_FULL, mysql.ER_LOCK_WAIT_TIMEOUT, mysql.ER_LOCK_DEADLOCK,
		mysql.ER_TOO_MANY_USER_CONNECTIONS, mysql.ER_USER_LIMIT_REACHED, mysql.ER_NET_READ_ERROR, mysql.ER_NET_READ_INTERRUPTED, mysql.ER_NET_ERROR_ON_WRITE,
		mysql.ER_NET_WRITE_INTERRUPTED, mysql.ER_NEW_ABORTING_CONNECTION, mysql.ER_ABORTING_CONNECTION, 3024, 3032: // statement timeout, offline mode
		return true
	}
	return false
}
