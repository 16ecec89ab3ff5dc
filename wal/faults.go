package wal

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// Codes of this package. Each is made in one place of this file or of connect.go's classifier, with what to do about it.
const (
	CodeUnreachable      = "OT2001"
	CodeAuth             = "OT2002"
	CodeTLS              = "OT2003"
	CodeNotReady         = "OT2004"
	CodeNoDatabase       = "OT2005"
	CodeTooOld           = "OT2006"
	CodeQuery            = "OT2007"
	CodePooler           = "OT2008"
	CodeWALLevel         = "OT2010"
	CodePrivilege        = "OT2011"
	CodeNoTable          = "OT2012"
	CodeNoColumn         = "OT2013"
	CodeNoPublication    = "OT2014"
	CodePublication      = "OT2015"
	CodeNoSlot           = "OT2016"
	CodeSlotCreation     = "OT2017"
	CodeEarliest         = "OT2018"
	CodeColumnList       = "OT2019"
	CodeUnlogged         = "OT2020"
	CodePartition        = "OT2021"
	CodeInherited        = "OT2022"
	CodeRowFilter        = "OT2023"
	CodeNoStart          = "OT2024"
	CodeOtherServer      = "OT2030"
	CodeOtherDatabase    = "OT2031"
	CodeSlotLost         = "OT2032"
	CodeSlotInvalidated  = "OT2033"
	CodeSlotAdvanced     = "OT2034"
	CodeAheadOfServer    = "OT2035"
	CodeBeyondFork       = "OT2036"
	CodeOtherHistory     = "OT2037"
	CodeDependsChanged   = "OT2038"
	CodePublicationGone  = "OT2039"
	CodeRanBefore        = "OT2040"
	CodeForeignSlot      = "OT2041"
	CodeColumnGone       = "OT2042"
	CodePartitionGone    = "OT2043"
	CodeSlotLimit        = "OT2044"
	CodeTwoPhase         = "OT2045"
	CodeCannotSend       = "OT2046"
	CodeStandbyAway      = "OT2047"
	CodeNotPromoted      = "OT2048"
	CodeConnectionLost   = "OT2050"
	CodeSlotActive       = "OT2051"
	CodeLogRemoved       = "OT2052"
	CodeProtocol         = "OT2053"
	CodeServerError      = "OT2054"
	CodeSilent           = "OT2055"
	CodeNotOpen          = "OT2056"
	CodeRenewed          = "OT2057"
	CodeRowTooLarge      = "OT2060"
	CodeUnchangedToast   = "OT2061"
	CodeBinaryValue      = "OT2062"
	CodeMessage          = "OT2063"
	CodePositionRefused  = "OT2070"
	CodeOptions          = "OT2071"
	opStart              = "start the postgres source"
	opConnect            = "connect to postgres"
	opResume             = "resume from the stored position"
	opStream             = "stream from postgres"
	opDecode             = "decode a row"
	opSet                = "set the position"
	waysAccept           = "\n  outtail checkpoint accept -c FILE --pipeline P --code %s --reason R   (goes on all the same)"
	waySetSlot           = "\n  outtail checkpoint set -c FILE --pipeline P --to slot --reason R   (goes on where the slot stands)"
	waySetNow            = "\n  outtail checkpoint set -c FILE --pipeline P --to now --reason R   (goes on at the end of the log)"
	waySetPast           = "\n  outtail checkpoint set -c FILE --pipeline P --to %s --reason R   (passes over the rest of the transaction)"
	waySetFork           = "\n  outtail checkpoint set -c FILE --pipeline P --to %s --reason R   (goes on at the fork)"
	wayReplay            = "\nwhat lies in the gap is not sent by any of these; its rows are in the table unless somebody deleted them"
	hintCreateSlotFormat = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput');"
)

func faultOptions(text string) *event.Fault {
	return &event.Fault{Code: CodeOptions, Class: event.Usage, Op: "configure the postgres source", Text: text, Hint: "correct the source's section of the configuration"}
}

// immediate is what waiting cannot mend: exit 3 at once.
func immediate(code, place, text, hint string) *event.Fault {
	return &event.Fault{Code: code, Class: event.Environment, Immediate: true, Op: opStart, Place: place, Text: text, Hint: hint}
}

// safety is what only a person may decide (I5). Ways names the commands that apply.
func safety(code, place, text, ways string) *event.Fault {
	return &event.Fault{Code: code, Class: event.Safety, Op: opResume, Place: place, Text: text, Hint: ways}
}

// since says when the position was saved from which on something may be missing: a gap has a length in time, too.
func since(f *event.Fault, saved time.Time) *event.Fault {
	if f.Class != event.Safety || saved.IsZero() {
		return f
	}
	g := *f
	g.Text += fmt.Sprintf("; the position was saved at %s, %s ago", saved.UTC().Format(time.RFC3339), time.Since(saved).Round(time.Second))
	return &g
}

// Acceptable are the codes of the findings that a person can accept (checkpoint accept), in order.
func Acceptable() []string {
	return []string{CodeOtherServer, CodeOtherDatabase, CodeSlotAdvanced, CodeAheadOfServer, CodeBeyondFork, CodeOtherHistory, CodeDependsChanged, CodeColumnGone}
}

func accept(code string) string { return fmt.Sprintf(waysAccept, code) }

func faultTooOld(place string, version int) *event.Fault {
	return immediate(CodeTooOld, place, fmt.Sprintf("the server's version %d.%d is older than 14", version/10000, version%10000), "use Postgres 14 or newer")
}

func faultPooler(place, said string) *event.Fault {
	f := immediate(CodePooler, place, "a connection pooler stands between: it carries neither the session's settings nor a replication connection",
		"connect directly: name the server itself in host and port")
	f.Op, f.Err = opConnect, errors.New(said)
	return f
}

func faultWALLevel(place, level string) *event.Fault {
	return immediate(CodeWALLevel, place, fmt.Sprintf("wal_level is %s, not logical", level),
		"ALTER SYSTEM SET wal_level = 'logical'; then restart the server (a managed service has a parameter for it, such as rds.logical_replication = 1)")
}

func faultPrimaryWALLevel(place string) *event.Fault {
	return immediate(CodeWALLevel, place, "the server is a standby, and the primary's wal_level is not logical",
		"on the primary: ALTER SYSTEM SET wal_level = 'logical'; then restart it (a managed service has a parameter for it, such as rds.logical_replication = 1)")
}

func faultReplicationPrivilege(place, user string) *event.Fault {
	return immediate(CodePrivilege, place, fmt.Sprintf("the role %s may not use replication", showIdent(user)),
		fmt.Sprintf("ALTER ROLE %s WITH REPLICATION; (on Amazon RDS: GRANT rds_replication TO %s;)", quoteIdent(user), quoteIdent(user)))
}

func faultNoTable(place string, n name) *event.Fault {
	return immediate(CodeNoTable, place, fmt.Sprintf("the table %s does not exist", n),
		"create it (`outtail init --source postgres` prints the statement), or correct `tables`; names are folded to lower case unless they are in double quotes")
}

func faultNotTable(place string, n name) *event.Fault {
	return immediate(CodeNoTable, place, fmt.Sprintf("%s is not a table", n), "name an ordinary or a partitioned table in `tables`")
}

func faultNoColumn(place string, n name, column string) *event.Fault {
	return immediate(CodeNoColumn, place, fmt.Sprintf("the table %s has no column %q", n, column),
		"correct `columns`, or ALTER TABLE "+n.sql()+" ADD COLUMN "+quoteIdent(column)+" …")
}

// faultGenerated: mendable says that the server can publish the column.
func faultGenerated(place, pub string, n name, column string, mendable bool) *event.Fault {
	or := ""
	if mendable {
		or = fmt.Sprintf(", or ALTER PUBLICATION %s SET (publish_generated_columns = stored); (or create it so)", quoteIdent(pub))
	}
	return immediate(CodeNoColumn, place, fmt.Sprintf("the column %q of %s is generated and not published", column, n), "map another column"+or)
}

func faultUnlogged(place string, n, child name) *event.Fault {
	return immediate(CodeUnlogged, place, fmt.Sprintf("the table %s is unlogged or temporary, so that its rows are not in the log", child),
		"ALTER TABLE "+child.sql()+" SET LOGGED;")
}

func faultNoPublication(place, pub string, names []name) *event.Fault {
	return immediate(CodeNoPublication, place, fmt.Sprintf("the publication %s does not exist", showIdent(pub)),
		createPublicationSQL(pub, names)+" (or create: true)")
}

func faultPublicationMissingTable(place, pub string, n name) *event.Fault {
	return immediate(CodePublication, place, fmt.Sprintf("the publication %s does not contain the table %s", showIdent(pub), n),
		fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s;", quoteIdent(pub), n.sql()))
}

func faultPublicationNoInsert(place, pub string) *event.Fault {
	return immediate(CodePublication, place, fmt.Sprintf("the publication %s does not publish inserts", showIdent(pub)),
		fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert');", quoteIdent(pub)))
}

func faultColumnList(place, pub string, n name, column string) *event.Fault {
	return immediate(CodeColumnList, place, fmt.Sprintf("the publication %s lists columns of %s without %q", showIdent(pub), n, column),
		fmt.Sprintf("ALTER PUBLICATION %s DROP TABLE %s; ALTER PUBLICATION %s ADD TABLE %s; (without a column list, or with that column)", quoteIdent(pub), n.sql(), quoteIdent(pub), n.sql()))
}

func faultSentAsRoot(place, pub string, n, root name) *event.Fault {
	return immediate(CodePartition, place, fmt.Sprintf("the publication %s sends the rows of %s as those of %s", showIdent(pub), n, root),
		fmt.Sprintf("name %s in `tables`, or ALTER PUBLICATION %s SET (publish_via_partition_root = false);", root, quoteIdent(pub)))
}

func faultTwoPhase(place, slot string, version int) *event.Fault {
	alter := ""
	if version >= 180000 {
		alter = fmt.Sprintf("over a replication connection to the database: ALTER_REPLICATION_SLOT %s ( TWO_PHASE false ); or ", quoteIdent(slot))
	}
	return immediate(CodeTwoPhase, place+" slot "+slot, "the slot was made with two_phase: it sends the rows of prepared transactions before they commit, and never again",
		alter+fmt.Sprintf("name another slot in `slot`; or drop this one with SELECT pg_drop_replication_slot(%s); and let outtail make it, which begins at the end of the log", quoteLiteral(slot)))
}

func faultNoSlot(place, slot string) *event.Fault {
	return immediate(CodeNoSlot, place, fmt.Sprintf("the replication slot %s does not exist", slot),
		fmt.Sprintf(hintCreateSlotFormat, quoteLiteral(slot))+" (or create: true)")
}

func faultEarliest(place, slot string) *event.Fault {
	return immediate(CodeEarliest, place, fmt.Sprintf("start is earliest, but the replication slot %s does not exist, and without a slot Postgres keeps nothing", slot),
		"start: now (with create: true), or create the slot first: "+fmt.Sprintf(hintCreateSlotFormat, quoteLiteral(slot)))
}

func faultNoStart(place, slot string) *event.Fault {
	return immediate(CodeNoStart, place, fmt.Sprintf("no position is stored, the replication slot %s does not exist, and start is not given", slot),
		"start: now, if what was written before is not to be sent")
}

func faultMessageEncoding(place, encoding string) *event.Fault {
	return immediate(CodeMessage, place, fmt.Sprintf("the database's encoding is %s, and the server sends messages in it unchanged, where JSON is UTF-8", encoding),
		"messages: false, and a table, whose columns the server converts")
}

func faultNoFailover(place string, version int) *event.Fault {
	return immediate(CodeSlotCreation, place, fmt.Sprintf("failover_slot needs Postgres 17, the server is %d", version/10000), "failover_slot: false")
}

func faultSlotCreation(place, slot string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeSlotCreation, Class: event.Retry, Op: "create the replication slot", Place: place + " slot " + slot,
		Text: "the server did not finish it in time; it waits for transactions that are open",
		Hint: "SELECT pid, xact_start, state, application_name FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start; end what is stuck", Err: err,
	}
}

func faultRanBefore(place, slot string, now event.LSN) *event.Fault {
	return safety(CodeRanBefore, place+" slot "+slot,
		fmt.Sprintf("no position is stored and the slot does not exist, yet the pipeline ran before: everything since then and before %s would be skipped", now),
		"bring back data_dir, or choose one:"+waySetNow+wayReplay)
}

func faultOtherServer(place string, stored, found string, at, now event.LSN) *event.Fault {
	return safety(CodeOtherServer, place,
		fmt.Sprintf("the stored position %s is of the server with system identifier %s, this one is %s (its log ends at %s)", at, stored, found, now),
		"connect to the former server, or choose one:"+accept(CodeOtherServer)+waySetSlot+waySetNow+wayReplay)
}

func faultOtherDatabase(place, stored, found string, at event.LSN) *event.Fault {
	return safety(CodeOtherDatabase, place, fmt.Sprintf("the stored position %s is of the database %s, this is %s", at, showIdent(stored), showIdent(found)),
		"correct `database`, or choose one:"+accept(CodeOtherDatabase)+waySetSlot+waySetNow+wayReplay)
}

func faultForeignSlot(place, slot, plugin, database string) *event.Fault {
	return safety(CodeForeignSlot, place+" slot "+slot, fmt.Sprintf("the slot is of plugin %q in database %q, not of pgoutput in ours", plugin, database),
		"name another slot in `slot`; it is somebody else's")
}

// faultNotPromoted is a server that cannot be read yet, as it is met in the middle of a failover: waiting mends it, or shows that it
// is the wrong one.
func faultNotPromoted(place, why string) *event.Fault {
	return &event.Fault{Code: CodeNotPromoted, Class: event.Environment, Op: opResume, Place: place, Text: "the server is a standby: " + why, Hint: "connect to the primary; or wait until this server is promoted or has caught up: it is tried again"}
}

// faultOtherSlot is a slot that does not exist while the position was stored for another one: a name that was changed.
func faultOtherSlot(place, slot, stored string, at event.LSN) *event.Fault {
	return safety(CodeSlotLost, place+" slot "+slot,
		fmt.Sprintf("the stored position (%s) belongs to slot %s, and the configured slot %s does not exist: was it renamed in the configuration?", at, stored, slot),
		fmt.Sprintf("write slot: %s again; or, if the other name is meant, choose one:", stored)+waySetNow+wayReplay)
}

func faultSlotLost(place, slot string, at, now event.LSN) *event.Fault {
	return safety(CodeSlotLost, place+" slot "+slot,
		fmt.Sprintf("the slot does not exist any more: the server no longer keeps what lies between %s (stored) and %s (end of its log)", at, now),
		"choose one:"+waySetNow+wayReplay)
}

// faultSlotInvalidated names the setting that did it where the server says which (17).
func faultSlotInvalidated(place, slot, why string, at, now event.LSN) *event.Fault {
	cause := ""
	switch why {
	case idleTimeout:
		cause = "nobody read it for longer than idle_replication_slot_timeout: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf(); "
	case "wal_removed", "wal_status lost":
		cause = "it kept more log than max_slot_wal_keep_size: raise it, "
	case "wal_level_insufficient":
		cause = "the wal_level of this standby's primary was below logical; on the primary: ALTER SYSTEM SET wal_level = 'logical'; and restart it; then here "
	case "rows_removed":
		cause = "the primary's vacuum removed what the slot needs: ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf(); "
	case conflict:
		cause = "the primary's vacuum removed what the slot needs (hot_standby_feedback = on keeps it), or its wal_level was lowered; "
	}
	return safety(CodeSlotInvalidated, place+" slot "+slot,
		fmt.Sprintf("the server has invalidated the slot (%s): what lies between %s and %s (end of its log) cannot be read from it", why, at, now),
		cause+fmt.Sprintf("SELECT pg_drop_replication_slot(%s); then choose one:", quoteLiteral(slot))+waySetNow+wayReplay)
}

func faultSlotAdvanced(place, slot string, at, confirmed event.LSN) *event.Fault {
	return safety(CodeSlotAdvanced, place+" slot "+slot,
		fmt.Sprintf("the slot stands at %s, beyond the stored position %s: it was recreated or somebody else advanced it, and what lies between is not sent by it any more", confirmed, at),
		"choose one:"+accept(CodeSlotAdvanced)+waySetSlot+wayReplay)
}

func faultAheadOfServer(place string, at, now event.LSN) *event.Fault {
	return safety(CodeAheadOfServer, place,
		fmt.Sprintf("the stored position %s lies beyond the end of the server's log %s: the server was restored from a backup, and what it writes up to there would be skipped", at, now),
		"choose one:"+accept(CodeAheadOfServer)+waySetSlot+waySetNow+wayReplay)
}

func faultBeyondFork(place string, at, fork event.LSN, from, to uint32) *event.Fault {
	return safety(CodeBeyondFork, place,
		fmt.Sprintf("the server is on timeline %d, which left ours (%d) at %s, before the stored position %s: events up to there were published that it does not have, and what it commits between the two would be skipped", to, from, fork, at),
		"choose one:"+accept(CodeBeyondFork)+fmt.Sprintf(waySetFork, fork)+waySetNow+wayReplay)
}

func faultOtherHistory(place string, at event.LSN, from, to uint32) *event.Fault {
	return safety(CodeOtherHistory, place,
		fmt.Sprintf("the stored position %s is on timeline %d, which is no ancestor of the server's timeline %d", at, from, to),
		"connect to the server that is the primary now, or choose one:"+accept(CodeOtherHistory)+waySetSlot+waySetNow+wayReplay)
}

func faultOtherBranch(place string, at event.LSN, tli uint32, began, here event.LSN) *event.Fault {
	return safety(CodeOtherHistory, place,
		fmt.Sprintf("the stored position %s is of a timeline %d that began at %s, and the one in the server's history began at %s: two standbys were promoted, and this is the other one", at, tli, began, here),
		"connect to the server that is the primary now, or choose one:"+accept(CodeOtherHistory)+waySetSlot+waySetNow+wayReplay)
}

func faultDependsChanged(place string, changes []string, from, to event.LSN) *event.Fault {
	return safety(CodeDependsChanged, place,
		fmt.Sprintf("%s; inserts between %s and %s may not have been published", strings.Join(changes, ", "), from, to),
		"choose one:"+accept(CodeDependsChanged)+wayReplay)
}

func faultPublicationGone(place, pub string, from, to event.LSN) *event.Fault {
	return safety(CodePublicationGone, place,
		fmt.Sprintf("the publication %s is missing in the log after %s (end of the log: %s); inserts made without it are not sent", showIdent(pub), from, to),
		"correct `publication` if its name is wrong; if it was dropped, create it again, drop the slot with SELECT pg_drop_replication_slot(…), then choose one:"+waySetNow+wayReplay)
}

func faultColumnGone(place, table, column string) *event.Fault {
	return safety(CodeColumnGone, place, fmt.Sprintf("rows of %s have no column %q at this point of the log", table, column),
		"correct `columns`, or choose one:"+accept(CodeColumnGone)+"\nthe rows are then sent without it")
}

func faultSlotActive(place, slot string, pid int) *event.Fault {
	return &event.Fault{
		Code: CodeSlotActive, Class: event.Retry, Standby: true, Op: "wait for the replication slot", Place: place + " slot " + slot,
		Text: fmt.Sprintf("the slot is in use by the server's process %d; waiting as a standby", pid),
		Hint: fmt.Sprintf("nothing, if another outtail runs; else SELECT client_addr, application_name FROM pg_stat_replication WHERE pid = %d;", pid),
	}
}

func faultConnectionLost(place string, err error) *event.Fault {
	return &event.Fault{Code: CodeConnectionLost, Class: event.Retry, Op: opStream, Place: place, Text: "the connection was lost", Hint: "it is tried again; the server's log tells why it ended", Err: err}
}

// faultRenewed ends a session that has read rows of a table from before it was attached, see filledVersion.
func faultRenewed(place string) *event.Fault {
	return &event.Fault{Code: CodeRenewed, Class: event.Retry, Op: opStream, Place: place, Text: "the session is begun anew behind the ATTACH of a table that had rows, which Postgres 14 would not send", Hint: "nothing; a table that is empty when it is attached needs none of this, nor does Postgres 15"}
}

func faultSilent(place string) *event.Fault {
	return &event.Fault{Code: CodeSilent, Class: event.Retry, Op: opStream, Place: place, Text: "the server does not answer any more", Hint: "it is tried again; look at the network between"}
}

// faultSlotLimit is told before the server gives the slot up, as long as something can be done.
func faultSlotLimit(place, slot string, k kept) *event.Fault {
	return &event.Fault{
		Code: CodeSlotLimit, Class: event.Config, Op: opStream, Place: place + " slot " + slot,
		Text: fmt.Sprintf("the slot keeps %d bytes of log (wal_status %s), and the server gives it up after %d more (max_slot_wal_keep_size)", k.bytes, k.status, max(0, k.safe)),
		Hint: "ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf(); and find out what holds the slot: the sink (/readyz), an old transaction (outtail doctor), or rewind_window",
	}
}

func faultStandbyAway(place, slot, away string) *event.Fault {
	return &event.Fault{
		Code: CodeStandbyAway, Class: event.Config, Op: opStream, Place: place + " slot " + slot,
		Text: fmt.Sprintf("synchronized_standby_slots names %s, and no standby reads that slot: the server sends nothing from a failover slot before that standby has it", away),
		Hint: "bring the standby back, or take it out: ALTER SYSTEM SET synchronized_standby_slots = '…'; SELECT pg_reload_conf();",
	}
}

func faultLogRemoved(place string, at event.LSN, err error) *event.Fault {
	return safety(CodeLogRemoved, place, fmt.Sprintf("the server has removed log that is needed after %s (%s)", at, err),
		"drop the slot, then choose one:"+waySetNow+wayReplay)
}

func faultServer(place string, class event.Class, err error) *event.Fault {
	return &event.Fault{Code: CodeServerError, Class: class, Op: opStream, Place: place, Text: "the server ended the stream", Hint: "the server's log tells more", Err: err}
}

// faultCannotSend is a row at which the server itself fails, each time: trying again would keep the slot there for ever.
func faultCannotSend(place string, tx event.LSN, row uint64, tries int, err error) *event.Fault {
	f := safety(CodeCannotSend, place,
		fmt.Sprintf("the server failed %d times at the same place, behind %d rows of the transaction %s: it cannot send what comes there (a row may have 1 GB as text, in which a bytea has two characters a byte)", tries, row, tx),
		"keep what is so large elsewhere and write where it is into the outbox; if the cause is another one, mend it on the server and start again; to go on without it:"+
			fmt.Sprintf(waySetPast, tx+1)+wayReplay)
	f.Err = err
	return f
}

func faultProtocol(place, text string) *event.Fault {
	return &event.Fault{Code: CodeProtocol, Class: event.Internal, Op: opStream, Place: place, Text: text, Hint: "this must not happen; please report it with the server's version"}
}

func faultNotOpen() *event.Fault {
	return &event.Fault{Code: CodeNotOpen, Class: event.Internal, Op: opStream, Text: "the source is not open", Hint: "this must not happen; please report it"}
}

func faultRow(code, place, text, hint string) *event.Fault {
	return &event.Fault{Code: code, Class: event.Record, Op: opDecode, Place: place, Text: text, Hint: hint}
}

func faultPosition(place, text, hint string) *event.Fault {
	return &event.Fault{Code: CodePositionRefused, Class: event.Usage, Op: opSet, Place: place, Text: text, Hint: hint}
}
