package shop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// BadType is the event type of Load.Bad's rows.
const BadType = "payment.made"

// Load says what to write.
type Load struct {
	Events     int // attempted in transactions that are meant to commit
	Aggregates int
	Writers    int // each has its own aggregates, so that commit order per aggregate is known; 0: 1
	Topic      string
	Seed       uint64
	// Pause is slept between transactions.
	Pause time.Duration
	// Until, where not nil, ends the load when it is closed, between transactions: what committed is known then.
	Until <-chan struct{}
	// Bad, above 0, makes one row in so many of the event type BadType, which no route of a test may take.
	Bad int
	// Persist goes on after errors of the database (restarts, cuts): what committed is read from the table at the end.
	Persist bool
}

// Written is what a Load attempted, in commit order per aggregate.
type Written struct {
	mu  sync.Mutex
	all []harness.Committed // Digest empty
}

// Committed compares with the table: what is there committed.
func (w *Written) Committed(t testing.TB, db Database) []harness.Committed {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := db.Payloads(t)
	var out []harness.Committed
	for _, c := range w.all {
		if payload, ok := rows[c.ID]; ok {
			c.Digest = harness.Digest(payload)
			out = append(out, c)
		}
	}
	require.Equal(t, len(rows), len(out), "every row of the outbox was written by the load")
	return out
}

// Len is how many events were attempted so far.
func (w *Written) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// Write runs the load to its end and returns what was attempted. It fails the test on an error unless Persist is set.
func (l Load) Write(t testing.TB, ctx context.Context, db Database) *Written {
	w := &Written{}
	require.NoError(t, l.WriteTo(ctx, db, w))
	return w
}

// WriteTo writes into w while it goes on; it may be watched meanwhile.
func (l Load) WriteTo(ctx context.Context, db Database, w *Written) error {
	writers := max(1, l.Writers)
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { // ends with its share of the load, or ctx
			errs[i] = l.writer(ctx, db, w, i, writers)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l Load) writer(ctx context.Context, db Database, w *Written, n, of int) error {
	rnd := rand.New(rand.NewPCG(l.Seed, uint64(n)))
	share := l.Events / of
	seq := map[int]int{}
	for done, tx := 0, 0; done < share; tx++ {
		select {
		case <-l.Until: // nil never comes
			return nil
		default:
		}
		rows := min(1+rnd.IntN(50), share-done)
		kept, err := l.transaction(ctx, db, w, rnd, n, of, rows, seq)
		done += kept
		if rolledBack(err) {
			continue
		}
		if err != nil {
			if !l.Persist || ctx.Err() != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond) // the database is away; the load has no other signal
		}
		if l.Pause > 0 {
			time.Sleep(l.Pause)
		}
	}
	return nil
}

// transaction writes rows, some of them taken back by ROLLBACK TO, with rows of another table in between, and commits
// four in five. kept counts what was attempted for good.
func (l Load) transaction(ctx context.Context, db Database, w *Written, rnd *rand.Rand, n, of, rows int, seq map[int]int) (kept int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing after a commit
	rollback := rnd.IntN(5) == 0
	var mine []harness.Committed
	insert := func() error {
		agg := n + of*rnd.IntN(max(1, l.Aggregates/of))
		seq[agg]++
		id := newID(rnd)
		key := fmt.Sprintf("agg-%d", agg)
		mine = append(mine, harness.Committed{ID: id, Topic: l.Topic, Key: key})
		eventType := "order.changed"
		if l.Bad > 0 && rnd.IntN(l.Bad) == 0 {
			eventType = BadType
		}
		return tx.Exec(ctx, "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, ?, ?, ?, ?, ?)",
			id, "order", key, eventType, payload(rnd, key, seq[agg]), headers(rnd))
	}
	for range rows {
		if rnd.IntN(10) == 0 {
			if err := tx.Exec(ctx, "INSERT INTO orders (id, note) VALUES (?, ?)", newID(rnd), "between"); err != nil {
				return 0, err
			}
		}
		if rnd.IntN(40) == 0 {
			before := len(mine)
			for _, q := range []string{"SAVEPOINT here", "", "", "ROLLBACK TO SAVEPOINT here"} {
				if q != "" {
					err = tx.Exec(ctx, q)
				} else {
					err = insert()
				}
				if err != nil {
					return 0, err
				}
			}
			mine = mine[:before]
		}
		if err := insert(); err != nil {
			return 0, err
		}
	}
	if rollback {
		return 0, tx.Rollback(ctx)
	}
	// Before the commit, so that an unknown outcome is looked up in the table.
	w.mu.Lock()
	w.all = append(w.all, mine...)
	w.mu.Unlock()
	return len(mine), tx.Commit(ctx)
}

// rolledBack says that the server chose the transaction as the victim of a deadlock: nothing of it committed.
func rolledBack(err error) bool {
	var my *mysql.MySQLError
	var pg *pgconn.PgError
	return errors.As(err, &my) && my.Number == 1213 || errors.As(err, &pg) && pg.Code == "40P01"
}

func newID(rnd *rand.Rand) string {
	a, b := rnd.Uint64(), rnd.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&0xffffffffffff)
}

// payload is JSON of very different sizes and characters; one in fifty is SQL NULL.
func payload(rnd *rand.Rand, key string, seq int) any {
	switch rnd.IntN(50) {
	case 0:
		return nil
	case 1:
		return `null`
	case 2:
		return fmt.Sprintf(`{"key":%q,"seq":%d,"text":"%s"}`, key, seq, strings.Repeat("große Bestellung ✓ \\u0001 \\\" ", 1+rnd.IntN(400)))
	}
	return fmt.Sprintf(`{"seq": %d, "key": %q, "total": %d.%02d, "big": 12345678901234567, "list": [1, "two", null, true, {"a": -0.5e-3}], "note": "%s"}`,
		seq, key, rnd.IntN(1e6), rnd.IntN(100), strings.Repeat("x", rnd.IntN(300)))
}

func headers(rnd *rand.Rand) any {
	if rnd.IntN(3) > 0 {
		return nil
	}
	return `{"tenant": "t1", "attempt": 3}`
}
