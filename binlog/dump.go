package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

const (
	// heartbeatEvery is how often the server speaks when it has nothing to say; silenceLimit is when we stop believing that it
	// is there, after three of them. TCP keepalive would notice a half-open connection, but not a server that hangs. Before its first
	// event a server may search its files for long.
	heartbeatEvery = 10 * time.Second
	silenceLimit   = 3 * heartbeatEvery
	openLimit      = 2 * silenceLimit
	// writeTimeout is the session's net_write_timeout: how long the server waits for a reader whose sink is down.
	writeTimeout = 24 * time.Hour

	dumpNonBlock    = 1
	dumpThroughGTID = 4
)

// origin says where a dump begins: by file and position where there are any that a dump can name, else by GTID set or MariaDB
// position. A set beside a file is what was executed before that place.
type origin struct {
	set   *gtidSet
	maria mariaPos
	file  string
	pos   uint64
}

// replica is how we present ourselves.
type replica struct {
	id   uint32
	uuid string
}

// dump turns a connection into a stream of events.
func (s *Source) dump(ctx context.Context, c *conn, from origin, as replica, flags uint16) error {
	beat := int64(heartbeatEvery)
	set := []string{
		// We check sums where the server makes them; both names, for both sides of 8.4.
		"SET @source_binlog_checksum = @@global.binlog_checksum, @master_binlog_checksum = @@global.binlog_checksum",
		fmt.Sprintf("SET @source_heartbeat_period = %d, @master_heartbeat_period = %d", beat, beat),
		fmt.Sprintf("SET @replica_uuid = '%s', @slave_uuid = '%s'", as.uuid, as.uuid),
		fmt.Sprintf("SET net_write_timeout = %d", int(writeTimeout.Seconds())),
	}
	if s.o.Kind == event.MariaDB {
		set = append(set, "SET @mariadb_slave_capability = 4")
		if from.maria != nil && from.file == "" {
			set = append(set,
				"SET @slave_connect_state = "+quote(from.maria.String()),
				"SET @slave_gtid_strict_mode = 0", "SET @slave_gtid_ignore_duplicates = 0")
		}
	}
	for _, q := range set {
		if _, err := c.query(ctx, q); err != nil {
			return s.queryFault("prepare the dump", err)
		}
	}
	_ = c.raw.SetDeadline(time.Now().Add(queryTimeout))
	defer func() { _ = c.raw.SetDeadline(time.Time{}) }()
	stop := context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	// COM_REGISTER_SLAVE makes us show up in SHOW REPLICAS, under the pipeline's name.
	host := s.o.ReportHost()
	b := append(make([]byte, 4, 64), mysql.COM_REGISTER_SLAVE)
	b = binary.LittleEndian.AppendUint32(b, as.id)
	b = append(b, byte(len(host)))
	b = append(b, host...)
	b = append(b, 0, 0, 0, 0) // no user, no password, port 0
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	c.ResetSequence()
	if err := c.WritePacket(b); err != nil {
		return s.queryFault("register as a replica", err)
	}
	if _, err := c.ReadOKPacket(); err != nil {
		return s.queryFault("register as a replica", err)
	}

	b = make([]byte, 4, 128)
	switch {
	case from.set != nil && (from.file == "" || from.pos > maxPos):
		b = append(b, mysql.COM_BINLOG_DUMP_GTID)
		b = binary.LittleEndian.AppendUint16(b, flags|dumpThroughGTID)
		b = binary.LittleEndian.AppendUint32(b, as.id)
		b = binary.LittleEndian.AppendUint32(b, 0) // no file
		b = binary.LittleEndian.AppendUint64(b, 4)
		data := from.set.encode()
		b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
		b = append(b, data...)
	default:
		pos := from.pos
		if from.maria != nil && from.file == "" {
			pos = 4
		}
		b = append(b, mysql.COM_BINLOG_DUMP)
		b = binary.LittleEndian.AppendUint32(b, uint32(pos))
		b = binary.LittleEndian.AppendUint16(b, flags)
		b = binary.LittleEndian.AppendUint32(b, as.id)
		b = append(b, from.file...)
	}
	c.ResetSequence()
	if err := c.WritePacket(b); err != nil {
		return s.queryFault("ask for the binlog", err)
	}
	return nil
}

// dumpFault classifies what ended a dump. The server has one code for all that is wrong with a binlog, 1236, so that its words
// must tell: they are the same since 5.6, and what they do not tell is a safety stop.
func (s *Source) dumpFault(err error) error {
	if f := event.AsFault(err); f != nil {
		return err
	}
	var d *errDump
	if !errors.As(err, &d) {
		f := &event.Fault{Code: codeLost, Class: event.Retry, Op: "read the binlog", Place: s.place(), Text: "the connection was lost",
			Hint: "it is made anew", Err: cause(err)}
		if errors.Is(err, errEnd) {
			f.Text, f.Err = "the server ended the dump", nil
		}
		if errors.Is(err, io.EOF) {
			f.Text, f.Err = "the server closed the connection", nil
		}
		return f
	}
	text := strings.ToLower(d.text)
	switch d.code {
	case mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG:
		f := s.fault(codeDump, event.Safety, "read the binlog", "the server cannot serve the position: "+d.text, s.ways(codeDump, "now", "earliest", "GTID", "FILE:POS"))
		switch {
		case strings.Contains(text, "same server_uuid") || strings.Contains(text, "same server_id") || strings.Contains(text, "same server-id"):
			f.Code, f.Class = codeServerID, event.Retry
			f.Text = "another replica uses our server id: " + d.text
			f.Hint = "set server_id in the pipeline's source to a number that no other replica of this server has"
		case strings.Contains(text, "cannot replicate anonymous transaction"):
			f.Text = "transactions without GTID lie ahead, which the server does not serve while gtid_mode is ON: " + d.text
			f.Hint = "SET GLOBAL gtid_mode = ON_PERMISSIVE; start again, and SET GLOBAL gtid_mode = ON; once they were read: nothing is lost. Or " +
				s.ways(codeDump, "now", "earliest", "GTID", "FILE:POS")
		case strings.Contains(text, "cannot replicate gtid-transaction"):
			f.Text = "transactions with GTID lie ahead, which the server does not serve while gtid_mode is OFF: " + d.text
			f.Hint = "SET GLOBAL gtid_mode = OFF_PERMISSIVE; start again, and SET GLOBAL gtid_mode = OFF; once they were read: nothing is lost. Or " +
				s.ways(codeDump, "now", "earliest", "FILE:POS")
		case strings.Contains(text, "purged"):
			f.Code, f.Hint = codePurged, s.ways(codePurged, "now", "earliest", "GTID")
			f.Text = "the server has purged binlogs that were not read: " + d.text
		case strings.Contains(text, "could not find first log"):
			f.Code, f.Hint = codeFile, s.ways(codeFile, "now", "earliest", "FILE:POS")
			f.Text = "the server has no such binlog any more: " + d.text
		case strings.Contains(text, "not found in the") || strings.Contains(text, "has more gtids") || strings.Contains(text, "not in the master's binlog"):
			f.Code, f.Hint = codeHistory, s.ways(codeHistory, "now", "earliest", "GTID")
			f.Text = "the server does not know transactions that were read: " + d.text
		}
		return f
	case mysql.ER_ACCESS_DENIED_ERROR, mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR:
		return s.privilegeFault("read the binlog", d.text)
	}
	return &event.Fault{Code: codeLost, Class: event.Retry, Op: "read the binlog", Place: s.place(), Text: "the server ended the dump: " + d.text,
		Hint: "the connection is made anew"}
}

// side is how short looks at the log present themselves: under another id, since a second dump of the same replica ends the
// first.
func (s *Source) side(what string) replica {
	seed := s.seed + "/" + what
	return replica{id: deriveServerID(seed), uuid: deriveUUID(seed)}
}
