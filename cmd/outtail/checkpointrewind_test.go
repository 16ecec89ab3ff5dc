package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

// serves is a server that has the log from a position on.
type serves event.LSN

func (s serves) Serves(_ context.Context, cp event.Checkpoint) error {
	if cp.Position.LSN < event.LSN(s) {
		return &event.Fault{Code: "OT2034", Class: event.Safety, Text: "gone"}
	}
	return nil
}
func (s serves) Oldest() string { return event.LSN(s).String() }
func (s serves) Between(from, to event.Position) int64 {
	return int64(to.LSN - from.LSN)
}
func (serves) Close() {}

func at(lsn event.LSN, events, rows uint64) event.Checkpoint {
	cp := event.Checkpoint{Position: event.Position{Kind: event.Postgres, SystemID: "7", LSN: lsn}, Events: events}
	if rows > 0 {
		cp.Prefix = &event.Prefix{Tx: "0/280", Rows: rows}
	}
	return cp
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// aPast stands at 0x300 with five rows done behind it, a minute after the last of four entries.
func aPast() *rewinding {
	w := &rewinding{p: config.Pipeline{Name: "orders", Source: config.Source{Kind: event.Postgres}}, now: at(0x300, 305, 5)}
	for i, cp := range []event.Checkpoint{at(0x100, 100, 0), at(0x200, 200, 3), at(0x200, 210, 0), at(0x400, 400, 0)} {
		w.past = append(w.past, checkpoint.Past{At: noon.Add(time.Duration(i) * time.Minute), Checkpoint: cp})
	}
	w.parked = []event.Parked{{Tx: "0/50", Index: 1}, {Tx: "0/250", Index: 0}, {Tx: "0/280", Index: 1}}
	return w
}

func TestWhereAPipelineGoesBackTo(t *testing.T) {
	entry := func(i int) string { return aPast().past[i].EntryID() }
	for name, c := range map[string]struct {
		to     string
		entry  int // index in the past
		code   string
		events int64
		parked int64
	}{
		"an entry":                           {to: entry(1), entry: 1, events: 105, parked: 1},
		"a time, and nothing younger":        {to: "2026-03-01T12:00:59Z", entry: 0, events: 205, parked: 2},
		"that very time":                     {to: "2026-03-01T12:01:00Z", entry: 1, events: 105, parked: 1},
		"how long ago":                       {to: "150s", entry: 1, events: 105, parked: 1},
		"a position that the history has":    {to: "0/200", entry: 2, events: 95, parked: 2},
		"before the history":                 {to: "2026-03-01T11:59:59Z", code: "OT0017"},
		"an entry that is none":              {to: "h123", code: "OT0017"},
		"a position of another kind":         {to: "binlog.000001:4", code: "OT0017"},
		"nothing":                            {to: "", code: "OT0017"},
		"an entry ahead, after a going back": {to: entry(3), code: "OT0018"},
		"now":                                {to: "0s", code: "OT0018"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aPast()
			err := w.choose(c.to, noon.Add(4*time.Minute))
			if err == nil {
				err = w.isBack()
			}
			if err == nil {
				w.target = w.asOfThen(w.target)
				err = w.measure(serves(0))
			}
			if c.code != "" {
				f := event.AsFault(err)
				require.NotNil(t, f, "%v", err)
				require.Equal(t, c.code, f.Code)
				require.Equal(t, event.Usage, f.Class)
				require.NotEmpty(t, f.Hint)
				return
			}
			require.NoError(t, err)
			require.Equal(t, w.past[c.entry].EntryID(), w.out.Entry)
			require.Equal(t, c.events, *w.out.Events)
			require.Equal(t, c.parked, w.out.Parked, "what lies between and is parked")
			require.Equal(t, w.past[c.entry].Checkpoint.Events, w.target.Events, "the count goes back, too")
			require.Equal(t, w.past[c.entry].Checkpoint.Prefix, w.target.Prefix)
		})
	}
}

func TestGoingBackWithinATransaction(t *testing.T) {
	for rows, back := range map[uint64]bool{0: true, 4: true, 5: false, 6: false} {
		w := aPast()
		w.target = at(0x300, 0, rows)
		require.Equal(t, back, w.isBack() == nil, "%d rows of it were done then, 5 are now", rows)
	}
	w := aPast()
	w.target = at(0x280, 0, 0)
	require.NoError(t, w.isBack())
	require.NoError(t, w.measure(serves(0)))
	require.EqualValues(t, 95, *w.out.Events, "at most what was counted since the entry before it")
	require.Contains(t, w.text(), "at most 95 events")
	w.target.Position.SystemID = "8"
	require.Equal(t, "OT0018", event.AsFault(w.isBack()).Code, "nobody can tell")
}

func TestTheOldestThatIsPossible(t *testing.T) {
	for from, want := range map[event.LSN]string{0x101: aPast().past[1].EntryID(), 0x201: "", 0x500: ""} {
		w := aPast()
		w.target = w.past[0].Checkpoint
		f := event.AsFault(w.oldest(t.Context(), serves(from), serves(from).Serves(t.Context(), w.target)))
		require.Equal(t, "OT0019", f.Code)
		require.Contains(t, f.Text, "begins at "+from.String())
		if want == "" {
			require.Contains(t, f.Hint, "no entry of the history can be served")
			continue
		}
		require.Contains(t, f.Hint, "--to "+want)
	}
	w := aPast() // somebody has gone back before: the last entry is lower than all
	w.past = append(w.past, checkpoint.Past{At: noon.Add(time.Hour), Checkpoint: at(0x50, 50, 0)})
	w.target = at(0x40, 0, 0)
	require.Contains(t, event.AsFault(w.oldest(t.Context(), serves(0x50), serves(0x50).Serves(t.Context(), w.target))).Hint, "--to "+w.past[4].EntryID())
	advanced := &event.Fault{Code: "OT2034", Text: "the slot stands at 0/101, beyond it"}
	for hint, s := range map[string]*config.Postgres{
		"rewind_window is off (0s)": {}, "rewind_window is 2h0m0s: ": {RewindWindow: 2 * time.Hour}, "rewind_window is 4096 bytes: ": {RewindWindowBytes: 4096},
	} {
		f := faultBeyond(config.Pipeline{Source: config.Source{Kind: event.Postgres, Postgres: s}}, advanced, nil, "")
		require.Contains(t, f.Hint, hint)
	}
	f := faultBeyond(config.Pipeline{}, advanced, nil, "0/101")
	require.Equal(t, 1, strings.Count(f.Text, "0/101"), "once is enough: %s", f.Text)
	down := &event.Fault{Code: "OT2001", Class: event.Environment}
	require.Equal(t, error(down), aPast().oldest(t.Context(), serves(0), down), "a server that was not asked refuses nothing")
}

func TestAFileAndOffsetDoNotSayWhatIsParkedBehindThem(t *testing.T) {
	w := aPast()
	w.p.Source.Kind = event.MySQL
	w.now = event.Checkpoint{Position: event.Position{Kind: event.MySQL, GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7", File: "b.2", Pos: 90}}
	w.target = event.Checkpoint{Position: event.Position{Kind: event.MySQL, File: "b.1", Pos: 4}}
	require.Equal(t, "OT0020", event.AsFault(w.measure(serves(0))).Code)
	w.parked = nil
	require.NoError(t, w.measure(serves(0)))
}
