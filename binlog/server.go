package binlog

import (
	"context"
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
)

// server is what was asked of the server at connect.
type server struct {
	version   string
	maria     bool
	uuid      string
	id        uint32
	gtids     bool // GTIDs are on (MySQL: gtid_mode = ON; MariaDB: always)
	logBin    bool
	format    string
	image     string
	metadata  string
	hidesKeys bool // knows generated invisible primary keys, which the log has and the catalogue may hide
	foldNames bool // lower_case_table_names
	executed  *gtidSet
	owned     *gtidSet // may be nil; see known
	purged    *gtidSet
	binlogPos mariaPos
	// binlogState: of each server in each domain the last GTID in the log, which says whether one that is not the domain's last is there.
	binlogState mariaState
	charsets    map[int]string // of collation ids
	files       []binlogFile
}

type binlogFile struct {
	name string
	size uint64
}

// prepare makes a connection ready for questions.
func (s *Source) prepare(ctx context.Context, c *conn, sv *server) error {
	// Between two polls it is idle for longer than some servers' wait_timeout.
	// Names and labels come as UTF-8 whatever collation the client offered: one that the server does not know makes it fall back to its own.
	q := fmt.Sprintf("SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', wait_timeout = %d", int(max(lockIdle, 6*pollEvery).Seconds()))
	if sv.hidesKeys {
		q += ", show_gipk_in_create_table_and_information_schema = ON"
	}
	if _, err := c.query(ctx, q); err != nil {
		return s.queryFault("prepare the session", err)
	}
	return nil
}

// ask reads what the checks and decisions need.
func (s *Source) ask(ctx context.Context, c *conn) (*server, error) {
	r, err := c.query(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version','server_uuid','server_id','gtid_mode','log_bin','binlog_format',"+
		"'binlog_row_image','binlog_row_metadata','lower_case_table_names','show_gipk_in_create_table_and_information_schema')")
	if err != nil {
		return nil, s.queryFault("read the server's variables", err)
	}
	vars := map[string]string{}
	for i := range r.RowNumber() {
		k, _ := r.GetString(i, 0)
		v, _ := r.GetString(i, 1)
		vars[strings.ToLower(k)] = v
	}
	sv := &server{
		version: vars["version"], uuid: vars["server_uuid"], gtids: vars["gtid_mode"] == "ON",
		logBin: vars["log_bin"] == "ON", format: vars["binlog_format"], image: vars["binlog_row_image"], metadata: vars["binlog_row_metadata"],
		foldNames: vars["lower_case_table_names"] != "0" && vars["lower_case_table_names"] != "",
	}
	sv.maria = strings.Contains(strings.ToLower(sv.version), "mariadb")
	_, _ = fmt.Sscan(vars["server_id"], &sv.id) // 0 where the server does not say
	_, sv.hidesKeys = vars["show_gipk_in_create_table_and_information_schema"]
	if err := s.prepare(ctx, c, sv); err != nil {
		return nil, err
	}
	if sv.maria {
		sv.gtids = true
		pos, err := s.value(ctx, c, "SELECT @@global.gtid_binlog_pos")
		if err == nil {
			sv.binlogPos, err = parseMariaPos(pos)
		}
		if err != nil {
			return nil, s.queryFault("read gtid_binlog_pos", err)
		}
		state, err := s.value(ctx, c, "SELECT @@global.gtid_binlog_state")
		if err == nil {
			sv.binlogState, err = parseMariaState(state)
		}
		if err != nil {
			return nil, s.queryFault("read gtid_binlog_state", err)
		}
	} else {
		// SHOW VARIABLES cuts long values off, SELECT does not. Purged first: what is purged in between makes the older answer
		// about it only milder, and the dump itself refuses then.
		purged, err := s.value(ctx, c, "SELECT @@global.gtid_purged")
		if err == nil {
			sv.purged, err = parseGTIDSet(purged)
		}
		if err != nil {
			return nil, s.queryFault("read gtid_purged", err)
		}
		// Owned before executed: what is neither of both between the two answers is in the second one.
		owned, err := s.value(ctx, c, "SELECT @@global.gtid_owned")
		if err != nil {
			owned = "" // not a MySQL that has it
		}
		executed, err := s.value(ctx, c, "SELECT @@global.gtid_executed")
		if err == nil {
			sv.executed, err = parseGTIDSet(executed)
		}
		if err != nil {
			return nil, s.queryFault("read gtid_executed", err)
		}
		sv.owned = parseOwned(owned)
	}
	q := "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
	if sv.maria {
		// Since 10.10 a collation may have an id only together with a character set.
		if r, err = c.query(ctx, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"); err != nil {
			r, err = c.query(ctx, q)
		}
	} else {
		r, err = c.query(ctx, q)
	}
	if err != nil {
		return nil, s.queryFault("read the server's collations", err)
	}
	sv.charsets = make(map[int]string, r.RowNumber())
	for i := range r.RowNumber() {
		id, _ := r.GetInt(i, 0)
		name, _ := r.GetString(i, 1)
		sv.charsets[int(id)] = name
	}
	return sv, nil
}

// known is what a dump may have sent. A transaction is sent when it is in the log, and is executed when the storage engine has committed it:
// seconds later, or for ever, where the server waits for a semi-synchronous replica in between. Until then it is owned. The server judges
// the set that a dump asks for by both, too.
func (sv *server) known() *gtidSet {
	if sv.owned == nil {
		return sv.executed
	}
	all := sv.executed.clone()
	all.union(sv.owned)
	return all
}

// endOfLog is the server's current position: file, offset, and the GTID set at exactly that place.
type endOfLog struct {
	file string
	pos  uint64
	gtid string
}

// logEnd asks where the log ends. The three answers of one row belong together.
func (s *Source) logEnd(ctx context.Context, c *conn, maria bool) (endOfLog, error) {
	r, err := c.query(ctx, "SHOW BINARY LOG STATUS")
	if err != nil {
		if r, err = c.query(ctx, "SHOW MASTER STATUS"); err != nil {
			return endOfLog{}, s.queryFault("read the log's end", err)
		}
	}
	if r.RowNumber() == 0 {
		return endOfLog{}, s.fault(codeLogBin, event.Environment, "read the log's end", "the server writes no binary log", "turn log_bin on in the server's configuration and restart it")
	}
	var e endOfLog
	e.file, _ = r.GetString(0, 0)
	e.pos, _ = r.GetUint(0, 1)
	if maria {
		g, err := c.query(ctx, fmt.Sprintf("SELECT BINLOG_GTID_POS(%s, %d)", quote(e.file), e.pos))
		if err != nil {
			return e, s.queryFault("read the GTID at the log's end", err)
		}
		e.gtid, _ = g.GetString(0, 0)
	} else if r.ColumnNumber() > 4 {
		e.gtid, _ = r.GetString(0, 4)
	}
	return e, nil
}

// binlogs lists the server's files, oldest first.
func (s *Source) binlogs(ctx context.Context, c *conn) ([]binlogFile, error) {
	r, err := c.query(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, s.queryFault("list the binary logs", err)
	}
	out := make([]binlogFile, r.RowNumber())
	for i := range out {
		out[i].name, _ = r.GetString(i, 0)
		out[i].size, _ = r.GetUint(i, 1)
	}
	return out, nil
}

// value asks for one text.
func (s *Source) value(ctx context.Context, c *conn, q string) (string, error) {
	r, err := c.query(ctx, q)
	if err != nil {
		return "", err
	}
	return r.GetString(0, 0)
}

// transactional reports whether a table's storage engine takes rows back; what is not known is taken for no.
func (s *Source) transactional(ctx context.Context, t *table) (bool, error) {
	if s.meta == nil {
		return true, nil
	}
	c, err := s.connectSame(ctx)
	if err != nil {
		return false, err
	}
	defer c.close()
	r, err := c.query(ctx, "SELECT e.TRANSACTIONS FROM information_schema.TABLES AS t JOIN information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE"+
		" WHERE t.TABLE_SCHEMA = "+quote(t.schema)+" AND t.TABLE_NAME = "+quote(t.table))
	if err != nil {
		return false, s.queryFault("look at the storage engine of "+t.name, err)
	}
	if r.RowNumber() == 0 {
		return false, nil
	}
	yes, _ := r.GetString(0, 0)
	return strings.EqualFold(yes, "YES"), nil
}
