package scene

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
)

// Mark keeps where the pipeline stands, while nothing runs, in the history of a moment of the past, and gives the entry's name.
func (s *Scene) Mark(at time.Time) (entry string) {
	s.T.Helper()
	store, err := checkpoint.Open(checkpoint.Options{Dir: s.Outtail.DataDir, Now: func() time.Time { return at }})
	require.NoError(s.T, err)
	defer func() { require.NoError(s.T, store.Close()) }()
	cp, err := store.Load("orders")
	require.NoError(s.T, err)
	require.NoError(s.T, store.Save(s.T.Context(), map[string]event.Checkpoint{"orders": cp}))
	past, err := store.History("orders")
	require.NoError(s.T, err)
	for _, p := range past {
		if p.At.Equal(at) {
			return p.EntryID()
		}
	}
	require.Fail(s.T, "the moment is not in the history")
	return ""
}

// Rewound is what `checkpoint rewind --json` prints.
type Rewound struct {
	DryRun   bool `json:"dry_run"`
	Entry    string
	Events   *int64
	LogBytes int64 `json:"log_bytes"`
	Parked   int64 `json:"parked_between"`
}

// Rewind runs checkpoint rewind with an exit code that is expected.
func (s *Scene) Rewind(exit int, to string, args ...string) (a Rewound, stderr string) {
	s.T.Helper()
	r := s.Outtail.Run(s.T, append([]string{"checkpoint", "rewind", "-c", s.Outtail.Config, "--pipeline", "orders", "--to", to, "--json"}, args...)...)
	require.Equal(s.T, exit, r.Code, r.Stderr)
	if exit == 0 {
		require.NoError(s.T, json.Unmarshal([]byte(r.Stdout), &a), r.Stdout)
	}
	return a, r.Stderr
}

// Again starts outtail and sees that exactly the events from number n on are delivered once more, in order, and one more behind them.
func (s *Scene) Again(n int) {
	s.T.Helper()
	before := len(s.Seen)
	p := s.Start()
	s.Insert(1)
	want := s.Sent[n:]
	p.Until(s.T, fmt.Sprintf("%d events once more", len(want)), func() bool {
		s.Arrived(p)
		return len(s.Seen) >= before+len(want)
	})
	s.Stop(p)
	var got []string
	for _, r := range s.Seen[before:] {
		got = append(got, Header(r, "id"))
	}
	require.Equal(s.T, want, got)
}
