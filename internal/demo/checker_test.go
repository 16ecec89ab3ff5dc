package demo

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func id(n uint64) EventID { return EventID{15: byte(n), 14: byte(n >> 8)} }

func rowsUpTo(aggregate string, n uint64) []Row {
	var rows []Row
	for i := uint64(1); i <= n; i++ {
		rows = append(rows, Row{Aggregate: aggregate, Number: i, ID: id(i), Digest: i})
	}
	return rows
}

func arrive(c *Checker, aggregate string, numbers ...uint64) {
	for _, n := range numbers {
		c.Arrived(Delivery{Aggregate: aggregate, Number: n, ID: id(n), Digest: n})
	}
}

// The rule of I3, one sequence of arrivals per case; ten rows were committed unless said otherwise.
func TestCheckerJudgesOneAggregate(t *testing.T) {
	cases := []struct {
		name                            string
		rows                            uint64
		kills                           int
		arrivals                        []uint64
		duplicates, lost, disorder, odd uint64
	}{
		{name: "all in order", rows: 4, arrivals: []uint64{1, 2, 3, 4}},
		{name: "nothing committed, nothing arrived"},
		{name: "the last one is lost", rows: 4, arrivals: []uint64{1, 2, 3}, lost: 1},
		{name: "the first one is lost", rows: 4, arrivals: []uint64{2, 3, 4}, lost: 1},
		{name: "one in the middle is lost", rows: 4, arrivals: []uint64{1, 2, 4}, lost: 1},
		{name: "everything is lost", rows: 4, lost: 4},
		{name: "two swapped", rows: 4, arrivals: []uint64{1, 3, 2, 4}, disorder: 1},
		{name: "one very late", rows: 5, arrivals: []uint64{1, 3, 4, 5, 2}, disorder: 1},
		{name: "reversed", rows: 3, arrivals: []uint64{3, 2, 1}, disorder: 2},
		{name: "a contiguous re-run", rows: 5, kills: 1, arrivals: []uint64{1, 2, 3, 2, 3, 4, 5}, duplicates: 2},
		{name: "a re-run of the last one only", rows: 3, kills: 1, arrivals: []uint64{1, 2, 2, 3}, duplicates: 1},
		{name: "a re-run that was killed and ran again", rows: 4, kills: 2, arrivals: []uint64{1, 2, 3, 1, 2, 1, 2, 3, 4}, duplicates: 5},
		{name: "a re-run with a hole", rows: 4, kills: 0, arrivals: []uint64{1, 2, 3, 4, 1, 3, 4}, duplicates: 3, disorder: 1},
		{name: "an old one alone, without the newer following", rows: 4, arrivals: []uint64{1, 2, 3, 1, 4}, duplicates: 1, disorder: 1},
		{name: "a re-run that never reaches the newest", rows: 4, arrivals: []uint64{1, 2, 3, 4, 2, 3}, duplicates: 2, disorder: 1},
		{name: "a request of the killed process appended late", rows: 5, kills: 1, arrivals: []uint64{1, 2, 3, 4, 2, 3, 5}, duplicates: 2, odd: 1},
		{name: "such a request at the very end", rows: 4, kills: 1, arrivals: []uint64{1, 2, 3, 4, 2, 3}, duplicates: 2, odd: 1},
		{name: "more late requests than kills", rows: 6, kills: 1, arrivals: []uint64{1, 2, 3, 4, 2, 5, 3, 6}, duplicates: 2, odd: 1, disorder: 1},
		{name: "a lost one before a re-run", rows: 5, kills: 1, arrivals: []uint64{1, 3, 4, 3, 4, 5}, duplicates: 2, lost: 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := NewChecker()
			for range tc.kills {
				c.Killed()
			}
			arrive(c, "a", tc.arrivals...)
			v := c.Judge(rowsUpTo("a", tc.rows))
			require.Equal(t, tc.duplicates, v.Duplicates, "duplicates")
			require.Equal(t, tc.lost, v.Lost, "lost")
			require.Equal(t, tc.disorder, v.OutOfOrder, "out of order")
			require.Equal(t, tc.odd, v.LateAppends, "late appends")
			require.Zero(t, v.Invented)
			require.Zero(t, v.Changed)
			require.Equal(t, tc.lost == 0 && tc.disorder == 0, v.Good())
		})
	}
}

func TestCheckerSeesWhatWasNeverCommittedOrWasChanged(t *testing.T) {
	t.Run("an event of a transaction that was rolled back, then the committed one", func(t *testing.T) {
		c := NewChecker()
		c.Arrived(Delivery{Aggregate: "a", Number: 1, ID: id(99), Digest: 9})
		arrive(c, "a", 1)
		v := c.Judge(rowsUpTo("a", 1))
		require.False(t, v.Good())
		require.NotZero(t, v.Invented)
	})
	t.Run("an event of which there is no row", func(t *testing.T) {
		c := NewChecker()
		arrive(c, "a", 1, 2)
		require.EqualValues(t, 1, c.Judge(rowsUpTo("a", 1)).Invented)
	})
	t.Run("an aggregate of which there is no row", func(t *testing.T) {
		c := NewChecker()
		arrive(c, "b", 1)
		require.EqualValues(t, 1, c.Judge(nil).Invented)
	})
	t.Run("an event without a number", func(t *testing.T) {
		c := NewChecker()
		arrive(c, "a", 0)
		require.EqualValues(t, 1, c.Judge(nil).Invented)
	})
	t.Run("a redelivery with other bytes", func(t *testing.T) {
		c := NewChecker()
		arrive(c, "a", 1)
		c.Arrived(Delivery{Aggregate: "a", Number: 1, ID: id(1), Digest: 7})
		v := c.Judge(rowsUpTo("a", 1))
		require.EqualValues(t, 1, v.Changed)
		require.False(t, v.Good())
	})
	t.Run("a delivery whose bytes are not those of the row", func(t *testing.T) {
		c := NewChecker()
		c.Arrived(Delivery{Aggregate: "a", Number: 1, ID: id(1), Digest: 7})
		require.EqualValues(t, 1, c.Judge(rowsUpTo("a", 1)).Changed)
	})
}

func TestLagIsTheAgeOfTheOldestCommittedEventThatDidNotArrive(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	c := NewChecker()
	c.Committed("a", 1, at(0))
	c.Committed("b", 1, at(1))
	c.Committed("a", 2, at(2))

	tally := c.Tally(at(5))
	require.EqualValues(t, 3, tally.Behind)
	require.Equal(t, 5*time.Second, tally.Lag)

	arrive(c, "a", 1)
	require.Equal(t, 4*time.Second, c.Tally(at(5)).Lag)

	// outtail may be faster than the thread that reports the commit.
	arrive(c, "b", 1, 2)
	c.Committed("b", 2, at(3))
	arrive(c, "a", 2)
	tally = c.Tally(at(5))
	require.Zero(t, tally.Behind)
	require.Zero(t, tally.Lag)
	require.EqualValues(t, 4, tally.Committed)
	require.EqualValues(t, 4, tally.Delivered)
}

func TestAnEventThatWasJumpedOverIsMissingUntilItComes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := NewChecker()
	for n := uint64(1); n <= 3; n++ {
		c.Committed("a", n, now)
	}
	arrive(c, "a", 1, 3)
	tally := c.Tally(now.Add(time.Second))
	require.EqualValues(t, 1, tally.Missing)
	require.EqualValues(t, 1, tally.Behind)
	require.Equal(t, time.Second, tally.Lag)

	arrive(c, "a", 2)
	tally = c.Tally(now)
	require.Zero(t, tally.Missing)
	require.Zero(t, tally.Behind)
	require.EqualValues(t, 1, tally.OutOfOrder)
}

func TestLatencyCoversFirstArrivalsOfTheLastSeconds(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := NewChecker()
	for n := uint64(1); n <= 10_000; n++ {
		committed := start.Add(time.Duration(n) * time.Millisecond)
		d := Delivery{Aggregate: "a", Number: n, ID: id(n), Digest: n, Committed: committed, Read: committed.Add(3 * time.Millisecond)}
		c.Arrived(d)
		d.Read = d.Read.Add(time.Hour) // a redelivery long after says nothing about latency
		c.Arrived(d)
	}
	require.Zero(t, NewChecker().Tally(start).Quantile(0.99))
	tally := c.Tally(start.Add(11 * time.Second))
	require.NotEmpty(t, tally.Recent)
	require.LessOrEqual(t, len(tally.Recent), recentLimit)
	require.Equal(t, 3*time.Millisecond, tally.Quantile(0.5))
	require.Empty(t, c.Tally(start.Add(time.Hour)).Recent)
}

// Whatever at-least-once delivery with contiguous re-runs yields is good; taking any one event out of it is not.
func TestCheckerAgainstAModelOfDelivery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		aggregates := rapid.IntRange(1, 4).Draw(t, "aggregates")
		c, mutilated := NewChecker(), NewChecker()
		var log []Delivery // commit order
		numbers := make([]uint64, aggregates)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			a := rapid.IntRange(0, aggregates-1).Draw(t, "aggregate")
			numbers[a]++
			log = append(log, Delivery{Aggregate: fmt.Sprint(a), Number: numbers[a], ID: id(numbers[a]), Digest: numbers[a]})
		}
		out := rapid.IntRange(0, len(log)-1).Draw(t, "lost")
		var rows []Row
		for _, d := range log {
			rows = append(rows, Row{d.Aggregate, d.Number, d.ID, d.Digest})
		}
		var duplicates uint64
		sent := 0 // how many of the log were sent at least once
		for at, life := 0, 0; ; life++ {
			end := rapid.IntRange(at, len(log)).Draw(t, "killed at")
			if life == 10 {
				end = len(log)
			}
			for i := at; i < end; i++ {
				c.Arrived(log[i])
				if i != out {
					mutilated.Arrived(log[i])
				}
			}
			duplicates += uint64(max(0, min(end, sent)-at))
			sent = max(sent, end)
			if end == len(log) {
				break
			}
			// A life stores positions between where it began and what it sent.
			at = rapid.IntRange(at, end).Draw(t, "stored position")
		}
		v := c.Judge(rows)
		require.True(t, v.Good(), "%+v", v)
		require.Equal(t, duplicates, v.Duplicates)
		require.EqualValues(t, 1, mutilated.Judge(rows).Lost)
	})
}
