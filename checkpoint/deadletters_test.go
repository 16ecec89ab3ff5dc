package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func deadLetter(order int64, payload string) event.Parked {
	var row event.Row
	row[event.ID] = event.Value{Set: true, Bytes: []byte(fmt.Sprint("id-", order))}
	row[event.Payload] = event.Value{Set: true, Bytes: []byte(payload)}
	row[event.Headers] = event.Value{Set: true, Null: true}
	row[event.Key] = event.Value{Set: true, Bytes: []byte{}}
	return event.Parked{
		Order: order, Tx: "0/16B3748", Index: 3, Table: "public.outbox", Source: "postgres/s/0/16B3748", ID: fmt.Sprint("id-", order), Aggregate: "order\x007",
		Topic: "orders", Key: []byte{0xff, 0}, Code: "OT5009", Class: "record", Text: "too large", Tries: 1, Size: 100,
		Commit: time.Unix(1_700_000_000, 0).UTC(), ParkedAt: time.Unix(1_700_000_000+order, 0).UTC(), Row: &row,
	}
}

func parking(entries ...event.Parked) (ops []event.Parking) {
	for i := range entries {
		ops = append(ops, event.Parking{Entry: &entries[i], Order: entries[i].Order})
	}
	return ops
}

func orders(t *testing.T, d *DeadLetters, from int64) (all []int64) {
	t.Helper()
	require.NoError(t, d.Each("p", from, func(e *event.Parked) error { all = append(all, e.Order); return nil }))
	return all
}

func TestParkedEventsAreKeptInOrderWithTheirRows(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	d := s.DeadLetters()
	require.Empty(t, orders(t, d, -10))
	require.NoFileExists(t, filepath.Join(dir, ParkedName), "what parks nothing has no second file")
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(0, "a"), deadLetter(1, "b"))))
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(-1, "front"))))
	require.NoError(t, d.Park(t.Context(), "other", parking(deadLetter(0, "x"))))
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir})
	d = s.DeadLetters()
	require.NoError(t, d.Check())
	require.Equal(t, []int64{-1, 0, 1}, orders(t, d, -1<<63))
	require.Equal(t, []int64{1}, orders(t, d, 1))
	want := deadLetter(0, "a")
	got, err := d.Get("p", 0)
	require.NoError(t, err)
	require.Equal(t, &want, got, "NULL, empty and unmapped stay apart")
	got, err = d.Get("p", 9)
	require.NoError(t, err)
	require.Nil(t, got)
	n, err := d.Open("p")
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Equal(t, deadLetter(-1, "").ParkedAt, d.Oldest("p"))

	require.NoError(t, d.Tried(t.Context(), "p", 1, &event.Fault{Code: "OT6101", Class: event.Record, Text: "no route", Hint: "add one"}))
	missing, err := d.End(t.Context(), "p", []event.Ending{{Order: -1, How: event.Skipped}, {Order: 0, How: event.Replayed, Tombstone: true}})
	require.NoError(t, err)
	require.Empty(t, missing)
	missing, err = d.End(t.Context(), "p", []event.Ending{{Order: -1, How: event.Skipped}, {Order: 0, How: event.Replayed, Tombstone: true}})
	require.NoError(t, err)
	require.Equal(t, []int64{-1, 0}, missing, "not there, and not open")
	require.Equal(t, []int64{0, 1}, orders(t, d, -1<<63))
	got, err = d.Get("p", 0)
	require.NoError(t, err)
	require.Equal(t, event.Replayed, got.Ended)
	got, err = d.Get("p", 1)
	require.NoError(t, err)
	require.Equal(t, 2, got.Tries)
	require.Equal(t, "OT6101", got.Code)
	n, err = d.Open("p")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, deadLetter(1, "").ParkedAt, d.Oldest("p"))
	require.NoError(t, d.Park(t.Context(), "p", []event.Parking{{From: 0, Order: 5}, {From: 77, Order: 78}})) // what is not there is not moved
	require.Equal(t, []int64{1, 5}, orders(t, d, -1<<63))
	got, err = d.Get("p", 5)
	require.NoError(t, err)
	want.Order = 5
	require.Equal(t, &want, got, "moved, with its row, and open again")
	n, err = d.Open("p")
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.NoError(t, d.Sweep(t.Context(), "p", []int64{5}))
	require.Equal(t, []int64{1}, orders(t, d, -1<<63))
}

func TestTheStoreOfParkedEventsIsBounded(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	d := s.DeadLetters()
	d.Limit("p", DeadLetterLimits{MaxEvents: 3, MaxBytes: 250})
	full := func(says string, entries ...event.Parked) {
		t.Helper()
		f := event.AsFault(d.Park(t.Context(), "p", parking(entries...)))
		require.Equal(t, CodeDeadFull, f.Code)
		require.Equal(t, event.Safety, f.Class)
		require.Contains(t, f.Text, says)
	}
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(0, "a"), deadLetter(1, "b"))))
	full("2 of 3 events, 200 of 250 bytes; 1 more of 100 bytes", deadLetter(2, "c")) // bytes
	d.Limit("p", DeadLetterLimits{MaxEvents: 3, MaxBytes: 1000})
	full("2 of 3 events, 200 of 1000 bytes; 2 more of 200 bytes", deadLetter(2, "c"), deadLetter(3, "d")) // all or none
	require.Equal(t, []int64{0, 1}, orders(t, d, -1<<63))
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(2, "c"))))
	_, err := d.End(t.Context(), "p", []event.Ending{{Order: 0, How: event.Skipped}})
	require.NoError(t, err)
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(3, "d"))))
}

func TestALostFileOfParkedEventsIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	require.NoError(t, s.DeadLetters().Park(t.Context(), "p", parking(deadLetter(0, "a"))))
	require.NoError(t, s.Close())
	path := filepath.Join(dir, ParkedName)
	require.NoError(t, os.Rename(path, path+".away"))
	s = open(t, Options{Dir: dir})
	f := event.AsFault(s.DeadLetters().Check())
	require.Equal(t, CodeParkedLost, f.Code)
	require.NoError(t, s.Close())
	require.NoError(t, os.Rename(path+".away", path))
	s = open(t, Options{Dir: dir})
	require.NoError(t, s.DeadLetters().Check())
	require.NoError(t, s.Close())

	require.NoError(t, os.Remove(path))
	s = open(t, Options{Dir: dir})
	require.Error(t, s.DeadLetters().Check())
	require.NoError(t, s.DeadLetters().Forget(t.Context(), By{Operator: "o", Reason: "r"}))
	require.NoError(t, s.DeadLetters().Check())
	audits, err := s.Audits()
	require.NoError(t, err)
	require.Equal(t, ActionForget, audits[len(audits)-1].Action)
	require.NoError(t, s.DeadLetters().Park(t.Context(), "p", parking(deadLetter(0, "a"))))
	require.NoError(t, s.DeadLetters().Check())
}

// A state file that was lost or damaged is replaced beside the parked events; they are missed again when they are lost.
func TestANewStateFileKnowsThatEventsAreParkedBesideIt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	require.NoError(t, s.DeadLetters().Park(t.Context(), "p", parking(deadLetter(0, "a"))))
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, FileName)))
	s = open(t, Options{Dir: dir})
	require.NoError(t, s.Import(t.Context(), "p", pg(1, 1), "", By{"ada", "damaged"}))
	require.NoError(t, s.DeadLetters().Check())
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, ParkedName)))
	s = open(t, Options{Dir: dir})
	requireFault(t, s.DeadLetters().Check(), CodeParkedLost, event.Safety)
}

// An older copy of the file of parked events has its identity, and not what was parked since.
func TestAnOlderCopyOfTheParkedEventsIsNoticed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ParkedName)
	s := open(t, Options{Dir: dir})
	require.NoError(t, s.DeadLetters().Park(t.Context(), "p", parking(deadLetter(0, "a"))))
	require.NoError(t, s.Save(t.Context(), map[string]event.Checkpoint{"p": pg(1, 1)}))
	require.NoError(t, s.Close())
	older, err := os.ReadFile(path)
	require.NoError(t, err)
	olderState, err := os.ReadFile(filepath.Join(dir, FileName))
	require.NoError(t, err)

	s = open(t, Options{Dir: dir})
	require.NoError(t, s.DeadLetters().Check())
	require.NoError(t, s.DeadLetters().Park(t.Context(), "p", parking(deadLetter(1, "b"))))
	require.NoError(t, s.Save(t.Context(), map[string]event.Checkpoint{"p": pg(2, 2)}))
	require.NoError(t, s.Close())
	newer, err := os.ReadFile(path)
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(path, older, 0o600))
	s = open(t, Options{Dir: dir})
	requireFault(t, s.DeadLetters().Check(), CodeParkedOlder, event.Safety)
	require.NoError(t, s.DeadLetters().Audit(Audit{Action: ActionSkip}), "what a command writes meanwhile")
	requireFault(t, s.DeadLetters().Check(), CodeParkedOlder, event.Safety)
	require.NoError(t, s.DeadLetters().Forget(t.Context(), By{Operator: "o", Reason: "r"}))
	require.NoError(t, s.DeadLetters().Check())
	require.NoError(t, s.Close())

	// A newer one beside an older position is what a crash leaves, too.
	require.NoError(t, os.WriteFile(path, newer, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), olderState, 0o600))
	s = open(t, Options{Dir: dir})
	require.NoError(t, s.DeadLetters().Check())
}
