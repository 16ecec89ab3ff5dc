package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

const pgEnd = `CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END`

// pgSettings are looked at; one that a version does not know, or the user may not see, is absent.
const pgSettings = `'wal_level', 'max_replication_slots', 'max_wal_senders', 'max_slot_wal_keep_size', 'wal_sender_timeout', 'idle_replication_slot_timeout',
	'fsync', 'full_page_writes', 'synchronous_commit', 'hot_standby_feedback', 'sync_replication_slots', 'synchronized_standby_slots', 'max_prepared_transactions', 'server_encoding'`

// collectPostgres asks the server; the second answer is why nothing could be asked.
func collectPostgres(ctx context.Context, o *Postgres) (*pgFacts, *Finding) {
	cfg, err := o.config(false)
	if err != nil {
		return nil, &Finding{Severity: Error, Code: codeReach, Found: err.Error(), Why: "outtail cannot start", Repair: "correct the TLS settings of the source"}
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		r := pgRefusalOf(err)
		if o.Refused != nil {
			r.Fault = o.Refused(err)
		}
		f := pgUnreachable(o, r)
		return nil, &f
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	a, f := pgAsk{conn}, &pgFacts{Retained: -1, Settings: map[string]string{}}
	_, f.TLS = conn.Conn().(*tls.Conn)
	for _, step := range []struct {
		what string
		ask  func(context.Context, pgAsk, *Postgres, *pgFacts) error
	}{
		{"the server's settings", pgServer},
		{"the replication connection", pgReplication},
		{"the publication", pgPublished},
		{"the tables", pgTables},
		{"the replication slot", pgSlotState}, // before the stored position, which must not be older than the slot's
		{"the stored position", pgStored},
		{"the end of the log", pgLogEnd},
		{"open transactions", pgHeld},
	} {
		if err := step.ask(ctx, a, o, f); err != nil {
			r := pgRefusalOf(err)
			return nil, &Finding{Severity: Error, Code: codeQuery, Found: "the server does not say what " + step.what + " is like: " + r.Text, Why: "what follows it could not be looked at either",
				Repair: "look again; if it persists, the server's log tells more"}
		}
	}
	return f, nil
}

func pgServer(ctx context.Context, a pgAsk, _ *Postgres, f *pgFacts) error {
	r, err := a.one(ctx, `SELECT current_setting('server_version_num'), pg_is_in_recovery(), r.rolsuper,
		r.rolreplication OR EXISTS (SELECT FROM pg_roles m WHERE m.rolname IN ('rds_replication', 'cloudsqlreplica') AND pg_has_role(m.oid, 'member')),
		(SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_stat_replication),
		coalesce(extract(epoch FROM nullif(r.rolvaliduntil, 'infinity') - now())::bigint, 0), r.rolconnlimit, has_database_privilege(current_database(), 'CREATE')
		FROM pg_roles r WHERE r.rolname = current_user`)
	if err != nil {
		return err
	}
	f.Version, _ = strconv.Atoi(r[0])
	f.Recovery, f.Superuser, f.Replication = r[1] == "t", r[2] == "t", r[3] == "t"
	f.Slots, _ = strconv.Atoi(r[4])
	f.Senders, _ = strconv.Atoi(r[5])
	f.Expires = seconds(r[6])
	f.Connections, _ = strconv.Atoi(r[7])
	f.MayCreate = r[8] == "t"
	rows, err := a.rows(ctx, `SELECT name, setting, coalesce(unit, '') FROM pg_settings WHERE name IN (`+pgSettings+`)`)
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Settings[r[0]] = r[1] + unitOf(r[2])
	}
	// Whether a walsender serves a standby shows to members of pg_read_all_stats only; slots show to everybody.
	r, err = a.one(ctx, `SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND active`)
	if err != nil {
		return err
	}
	f.Standbys, _ = strconv.Atoi(r[0])
	rows, err = a.rows(ctx, `SELECT n, EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = n AND slot_type = 'physical' AND active)
		FROM regexp_split_to_table(replace($1, '"', ''), '\s*,\s*') n WHERE n <> ''`, f.Settings["synchronized_standby_slots"])
	for _, r := range rows {
		f.Guards = append(f.Guards, pgGuard{r[0], r[1] == "t"})
	}
	return err
}

// unitOf keeps the unit behind the number; -1 and 0 are recognised with it.
func unitOf(unit string) string {
	if unit == "" {
		return ""
	}
	return " " + unit
}

// pgReplication opens a replication connection, as a start would, and closes it.
func pgReplication(ctx context.Context, _ pgAsk, o *Postgres, f *pgFacts) error {
	cfg, err := o.config(true)
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		f.Refused = pgRefusalOf(err)
		return nil
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	res, err := conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	switch {
	case err != nil:
		f.Refused = pgRefusalOf(err)
	case len(res) == 1 && len(res[0].Rows) == 1 && len(res[0].Rows[0]) >= 2:
		f.SystemID = string(res[0].Rows[0][0])
		tli, _ := strconv.ParseUint(string(res[0].Rows[0][1]), 10, 32)
		f.Timeline = uint32(tli)
		if path, err := conn.Exec(ctx, "SHOW search_path").ReadAll(); err == nil && len(path) == 1 && len(path[0].Rows) == 1 && string(path[0].Rows[0][0]) != cfg.RuntimeParams["search_path"] {
			f.Refused = &pgRefusal{State: "08P01", Text: "what the session is begun with does not hold"} // a pooler that was told to ignore it
		}
	}
	return nil
}

func pgPublished(ctx context.Context, a pgAsk, o *Postgres, f *pgFacts) error {
	r, err := a.one(ctx, `SELECT puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, coalesce(to_jsonb(p)->>'pubgencols', 'n') FROM pg_publication p WHERE pubname = $1`, o.Publication)
	if err != nil || r == nil {
		return err
	}
	is := func(i int) bool { return r[i] == "t" }
	f.Publication = &pgPublication{AllTables: is(0), Insert: is(1), Update: is(2), Delete: is(3), Truncate: is(4), ViaRoot: is(5), Generated: r[6] == "s"}
	if !f.Publication.Update && !f.Publication.Delete {
		return nil
	}
	rows, err := a.rows(ctx, `SELECT p.schemaname, p.tablename FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
		JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
		WHERE p.pubname = $1 AND c.relkind = 'r' AND c.relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid
			AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)) ORDER BY 1, 2 LIMIT 4`, o.Publication)
	for _, r := range rows {
		f.Nameless = append(f.Nameless, sqlName{r[0], r[1]})
	}
	return err
}

func pgTables(ctx context.Context, a pgAsk, o *Postgres, f *pgFacts) error {
	for _, text := range o.Tables {
		n, err := parseName(text, "", `"`, true)
		if err != nil {
			return err
		}
		t, err := pgOneTable(ctx, a, o, f, n)
		if err != nil {
			return err
		}
		f.Tables = append(f.Tables, t)
	}
	return nil
}

func pgOneTable(ctx context.Context, a pgAsk, o *Postgres, f *pgFacts, n sqlName) (pgTable, error) {
	t := pgTable{Name: n}
	r, err := a.one(ctx, `SELECT c.oid, c.relkind, c.relpersistence, has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, n.schema, n.table)
	if err != nil || r == nil {
		return t, err
	}
	rel := r[0]
	t.Exists, t.Kind, t.Persistence, t.Select, t.Owner = true, r[1], r[2], r[3] == "t", r[4] == "t"
	rows, err := a.rows(ctx, `SELECT a.attname, format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL), a.attgenerated
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`, rel)
	if err != nil {
		return t, err
	}
	t.Columns = map[string]pgColumn{}
	for _, r := range rows {
		t.Columns[r[0]] = pgColumn{Type: r[1], Generated: r[2]}
	}
	if t.Kind == "p" {
		if r, err = a.one(ctx, `SELECT n.nspname, c.relname FROM pg_partition_tree($1::oid::regclass) p JOIN pg_class c ON c.oid = p.relid
			JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.isleaf AND c.relpersistence <> 'p' AND c.relkind = 'r' LIMIT 1`, rel); err != nil {
			return t, err
		}
		if r != nil {
			t.Unlogged = &sqlName{r[0], r[1]}
		}
	}
	if f.Publication == nil {
		return t, nil
	}
	return t, pgMembership(ctx, a, o, f, rel, &t)
}

// pgMembership finds how the publication holds the table: by name, by schema (15), or through an ancestor.
func pgMembership(ctx context.Context, a pgAsk, o *Postgres, f *pgFacts, rel string, t *pgTable) error {
	extra, schemas := "false, ''", ""
	if f.Version >= 150000 {
		extra = `r.prqual IS NOT NULL, coalesce((SELECT string_agg(a.attname::text, E'\x01') FROM pg_attribute a WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)), '')`
		schemas = ` OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)`
	}
	r, err := a.one(ctx, `SELECT `+extra+` FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1 AND r.prrelid = $2::oid`, o.Publication, rel)
	if err != nil {
		return err
	}
	t.Published = f.Publication.AllTables || r != nil
	if r != nil {
		t.Filter = r[0] == "t"
		if r[1] != "" {
			t.List = strings.Split(r[1], "\x01")
		}
	}
	if !t.Published && schemas != "" {
		if r, err = a.one(ctx, `SELECT 1 FROM pg_publication p, pg_class c WHERE p.pubname = $1 AND c.oid = $2::oid AND (false`+schemas+`)`, o.Publication, rel); err != nil {
			return err
		}
		t.Published = r != nil
	}
	// The topmost published ancestor is the one under whose name rows go out with publish_via_partition_root.
	r, err = a.one(ctx, `SELECT n.nspname, c.relname FROM pg_publication p, pg_partition_ancestors($2::oid::regclass) WITH ORDINALITY a(relid, o)
		JOIN pg_class c ON c.oid = a.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.pubname = $1 AND c.oid <> $2::oid AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)`+schemas+`)
		ORDER BY o DESC LIMIT 1`, o.Publication, rel)
	if err == nil && r != nil {
		t.Ancestor = &sqlName{r[0], r[1]}
	}
	return err
}

func pgSlotState(ctx context.Context, a pgAsk, o *Postgres, f *pgFacts) error {
	r, err := a.one(ctx, `SELECT row_to_json(s), coalesce((SELECT application_name FROM pg_stat_activity WHERE pid = s.active_pid), ''),
		coalesce(pg_wal_lsn_diff(`+pgEnd+`, s.restart_lsn)::bigint, -1) FROM pg_replication_slots s WHERE slot_name = $1`, o.Slot)
	if err != nil || r == nil {
		return err
	}
	f.Slot = &pgSlot{}
	if err := json.Unmarshal([]byte(r[0]), f.Slot); err != nil {
		return fmt.Errorf("read pg_replication_slots: %w", err)
	}
	f.Slot.Application = r[1]
	f.Retained, err = strconv.ParseInt(r[2], 10, 64)
	return err
}

func pgStored(ctx context.Context, _ pgAsk, o *Postgres, f *pgFacts) error {
	if o.Stored != nil {
		f.Stored, f.StoredErr = o.Stored(ctx)
	}
	if o.Resume != nil && f.StoredErr == nil && !f.Stored.IsZero() && f.Slot != nil && f.Refused == nil {
		f.Resume = o.Resume(ctx)
	}
	return nil
}

func pgLogEnd(ctx context.Context, a pgAsk, _ *Postgres, f *pgFacts) error {
	r, err := a.one(ctx, `SELECT `+pgEnd)
	if err != nil {
		return err
	}
	f.End, err = event.ParseLSN(r[0])
	return err
}

// pgHeld finds transactions that have been open for long: a slot keeps the log from the oldest one on.
func pgHeld(ctx context.Context, a pgAsk, o *Postgres, f *pgFacts) error {
	rows, err := a.rows(ctx, `SELECT pid, coalesce(application_name, ''), extract(epoch FROM now() - xact_start)::bigint FROM pg_stat_activity
		WHERE xact_start < now() - interval '5 minutes' AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 3`)
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Held = append(f.Held, pgHolder{What: fmt.Sprintf("the transaction of process %s (%s)", r[0], r[1]), Age: seconds(r[2]), End: "SELECT pg_terminate_backend(" + r[0] + ");"})
	}
	if rows, err = a.rows(ctx, `SELECT gid, extract(epoch FROM now() - prepared)::bigint FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 3`); err != nil {
		return err
	}
	for _, r := range rows {
		f.Held = append(f.Held, pgHolder{What: "the prepared transaction " + r[0], Age: seconds(r[1]), End: "COMMIT PREPARED " + literal(r[0]) + ";  or  ROLLBACK PREPARED " + literal(r[0]) + ";"})
	}
	r, err := a.one(ctx, `SELECT pg_has_role('pg_read_all_stats', 'usage')`)
	if err == nil && r[0] == "f" {
		f.Hidden = append(f.Hidden, hidden{what: "how old other users' transactions are", needs: "pg_read_all_stats", sql: "GRANT pg_read_all_stats TO " + pgIdent(o.User) + ";"})
	}
	return err
}

func seconds(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Second
}
