package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// The shop's shape: as many aggregates as customers, shared out among its clerks, so that one customer's orders are
// committed one after the other and their numbers are the order of commits.
const (
	customers     = 200
	clerks        = 8
	rolledBackPct = 10
)

// schema is the business table and the outbox of preset `outtail`. The outbox belongs to the role that outtail logs in
// with, because that one creates the publication.
const schema = `
CREATE TABLE orders (
	customer text NOT NULL,
	number bigint NOT NULL,
	total numeric(10,2) NOT NULL,
	placed_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (customer, number)
);
CREATE TABLE outbox (
	id uuid PRIMARY KEY,
	aggregate_type text NOT NULL,
	aggregate_id text NOT NULL,
	event_type text NOT NULL,
	payload jsonb,
	headers jsonb,
	occurred_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE outbox OWNER TO outtail;
GRANT CREATE ON DATABASE shop TO outtail;
`

// createShop makes database, role and tables.
func createShop(ctx context.Context, p *postgres) error {
	admin, err := p.connect(ctx, "postgres", "postgres")
	if err != nil {
		return shopFault(err)
	}
	defer admin.Close(context.WithoutCancel(ctx))
	// The password is hexadecimal-like text of rand.Text: letters and digits only, so it needs no escaping.
	for _, statement := range []string{
		"CREATE DATABASE shop",
		"CREATE ROLE outtail LOGIN REPLICATION PASSWORD '" + p.password + "'",
	} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return shopFault(fmt.Errorf("prepare the database: %w", err))
		}
	}
	shop, err := p.connect(ctx, "postgres", "shop")
	if err != nil {
		return shopFault(err)
	}
	defer shop.Close(context.WithoutCancel(ctx))
	if _, err := shop.Exec(ctx, schema); err != nil {
		return shopFault(fmt.Errorf("create the tables: %w", err))
	}
	return nil
}

// shop is the order service.
type shop struct {
	postgres   *postgres
	checker    *Checker
	rate       int
	rolledBack atomic.Uint64
}

// run commits orders until stop is closed, each clerk in its own session and goroutine; all have ended when it returns.
// A transaction that was begun is finished, so that no commit has an unknown outcome.
func (s *shop) run(ctx context.Context, stop <-chan struct{}) error {
	var wait sync.WaitGroup
	errs := make(chan error, clerks)
	halt := make(chan struct{})
	var once sync.Once
	for n := range clerks {
		wait.Go(func() {
			if err := s.clerk(ctx, n, stop, halt); err != nil {
				errs <- err
				once.Do(func() { close(halt) })
			}
		})
	}
	wait.Wait()
	select {
	case err := <-errs:
		return shopFault(err)
	default:
		return nil
	}
}

func (s *shop) clerk(ctx context.Context, n int, stop, halt <-chan struct{}) error {
	session, err := s.postgres.connect(ctx, "postgres", "shop")
	if err != nil {
		return err
	}
	defer session.Close(context.WithoutCancel(ctx))

	numbers := map[int]uint64{} // committed orders by customer
	pause := time.Duration(float64(time.Second) * clerks / float64(s.rate))
	due := time.Now().Add(pause * time.Duration(n) / clerks)
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-halt:
			return nil
		case <-timer.C:
		}
		customer := n + clerks*mrand.IntN(customers/clerks)
		if mrand.IntN(100) < rolledBackPct {
			// The same number is used by the next attempt: were this one published, the checker would see two.
			if err := s.place(ctx, session, customer, numbers[customer]+1, false); err != nil {
				return err
			}
		} else {
			if err := s.place(ctx, session, customer, numbers[customer]+1, true); err != nil {
				return err
			}
			numbers[customer]++
		}
		// What could not be kept up with is not caught up in a burst of more than a second.
		due = due.Add(pause)
		if behind := time.Since(due); behind > time.Second {
			due = due.Add(behind - time.Second)
		}
		timer.Reset(time.Until(due))
	}
}

// place inserts an order and its outbox row in one transaction and commits it, or rolls it back as a shop does whose
// payment was refused.
func (s *shop) place(ctx context.Context, session *pgx.Conn, customer int, number uint64, paid bool) error {
	name := fmt.Sprintf("customer-%03d", customer)
	placed := time.Now()
	total, payload, err := newOrder(name, number, placed)
	if err != nil {
		return err
	}
	tx, err := session.Begin(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the end it says so and does nothing
	if _, err := tx.Exec(ctx, "INSERT INTO orders (customer, number, total) VALUES ($1, $2, $3::numeric)", name, number, total); err != nil {
		return ended(ctx, err)
	}
	var id EventID
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a random UUID says so (RFC 9562, section 5.4)
	_, err = tx.Exec(ctx, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
		VALUES ($1, 'customer', $2, 'order.created', $3)`, [16]byte(id), name, payload)
	if err != nil {
		return ended(ctx, err)
	}
	if !paid {
		if err := tx.Rollback(ctx); err != nil {
			return ended(ctx, err)
		}
		s.rolledBack.Add(1)
		return nil
	}
	if err := tx.Commit(ctx); err != nil {
		return ended(ctx, err)
	}
	s.checker.Committed(name, number, placed)
	return nil
}

// ended makes nothing of an error that comes from the demo's own end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func newOrder(customer string, number uint64, placed time.Time) (total string, payload []byte, err error) {
	o := order{Customer: customer, Number: number, PlacedAt: placed.UnixMicro()}
	goods := []string{"Kettle", "Lamp", "Notebook", "Teapot", "Umbrella", "Wall clock"}
	cents := 0
	for range 1 + mrand.IntN(4) {
		g, quantity, price := mrand.IntN(len(goods)), 1+mrand.IntN(3), 199+mrand.IntN(9000)
		cents += quantity * price
		o.Items = append(o.Items, item{
			SKU: fmt.Sprintf("SKU-%04d", 1000+g*37), Name: goods[g], Quantity: quantity, Price: money(price),
		})
	}
	o.Total = money(cents)
	payload, err = json.Marshal(o)
	return o.Total, payload, err
}

func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// rows reads the whole outbox: the truth that the verdict compares with.
func (s *shop) rows(ctx context.Context) ([]Row, error) {
	session, err := s.postgres.connect(ctx, "postgres", "shop")
	if err != nil {
		return nil, shopFault(err)
	}
	defer session.Close(context.WithoutCancel(ctx))
	found, err := session.Query(ctx, "SELECT aggregate_id, id, payload::text FROM outbox")
	if err != nil {
		return nil, shopFault(err)
	}
	rows, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (Row, error) {
		var row Row
		var payload string
		if err := r.Scan(&row.Aggregate, (*[16]byte)(&row.ID), &payload); err != nil {
			return row, err
		}
		var o order
		if err := json.Unmarshal([]byte(payload), &o); err != nil {
			return row, err
		}
		row.Number, row.Digest = o.Number, digest(row.Aggregate, []byte(payload))
		return row, nil
	})
	if err != nil {
		return nil, shopFault(fmt.Errorf("read the outbox: %w", err))
	}
	return rows, nil
}
