package wal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

// slotTimeout is how long the server may take to create a slot: it waits for a record of running transactions (up to
// 15 s on a quiet server) and for the transactions in it.
const slotTimeout = 60 * time.Second

// createPublicationSQL publishes inserts of the tables only; partitioned tables under their own name.
func createPublicationSQL(pub string, names []name) string {
	if len(names) == 0 { // for messages alone
		return fmt.Sprintf("CREATE PUBLICATION %s WITH (publish = 'insert', publish_via_partition_root = true);", quoteIdent(pub))
	}
	tables := make([]string, len(names))
	for i, n := range names {
		tables[i] = n.sql()
	}
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true);", quoteIdent(pub), strings.Join(tables, ", "))
}

// createPublication makes the publication. It comes before the slot: pgoutput looks it up as of the point of the log that
// it decodes.
func createPublication(ctx context.Context, o *Options, c *catalog, names []name) *event.Fault {
	sql := createPublicationSQL(o.Publication, names)
	_, err := c.conn.Exec(ctx, sql).ReadAll()
	if err == nil {
		o.Logger.Info("publication created", "publication", o.Publication, "tables", o.Tables)
		return nil
	}
	f := o.queryFault("create the publication", err)
	if f.Code == CodePrivilege {
		f.Hint = "let the owner of the tables run: " + sql
	}
	return f
}

// createSlot makes the slot and gives its consistent point, from which on it delivers.
func createSlot(ctx context.Context, o *Options, repl *pgconn.PgConn) (event.LSN, *event.Fault) {
	creating := &event.Fault{
		Code: CodeSlotCreation, Class: event.Retry, Op: "create the replication slot", Place: o.place() + " slot " + o.Slot,
		Text: "waiting for the server to create the slot; it waits for open transactions",
		Hint: "wait, or end what is stuck: SELECT pid, xact_start, state, application_name FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start",
	}
	// The server usually answers within milliseconds; only a wait is worth telling.
	var mu sync.Mutex
	over := false
	late := time.AfterFunc(5*time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			o.Conditions("slot_creation", creating)
		}
	})
	defer func() {
		late.Stop()
		mu.Lock()
		over = true
		mu.Unlock()
		o.Conditions("slot_creation", nil)
	}()
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	sql := fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput NOEXPORT_SNAPSHOT", quoteIdent(o.Slot))
	if o.FailoverSlot {
		sql = fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)", quoteIdent(o.Slot))
	}
	res, err := pglogrepl.ParseCreateReplicationSlot(repl.Exec(ctx, sql))
	if err != nil {
		return 0, slotFault(ctx, o, err)
	}
	at, err := event.ParseLSN(res.ConsistentPoint)
	if err != nil {
		return 0, faultProtocol(o.place(), "the new slot's consistent point cannot be read")
	}
	o.Logger.Info("replication slot created", "slot", o.Slot, "lsn", at.String(), "failover", o.FailoverSlot)
	return at, nil
}

func slotFault(ctx context.Context, o *Options, err error) *event.Fault {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok && ctx.Err() != nil:
		return faultSlotCreation(o.place(), o.Slot, err)
	case !ok:
		return o.queryFault("create the replication slot", err)
	case pg.Code == statePrivilege:
		return faultReplicationPrivilege(o.place(), o.User)
	case pg.Code == stateConfigurationLimit:
		f := immediate(CodeSlotCreation, o.place(), "the server has no replication slot left",
			"ALTER SYSTEM SET max_replication_slots = …; then restart the server, or drop slots that nobody needs: SELECT slot_name, active, restart_lsn FROM pg_replication_slots;")
		f.Err = pgText(pg)
		return f
	case pg.Code == stateNotPrerequisite: // our own server's level was looked at
		f := faultPrimaryWALLevel(o.place())
		f.Err = pgText(pg)
		return f
	case pg.Code == stateDuplicateObject:
		// Somebody was faster: the next try finds it and resumes there.
		return o.queryFault("create the replication slot", err)
	}
	return o.queryFault("create the replication slot", err)
}
