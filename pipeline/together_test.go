package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// keptSource tells that its session is over although nobody reads.
type keptSource struct {
	*fakeSource
	mu   sync.Mutex
	ctx  context.Context
	lose context.CancelCauseFunc
}

func (s *keptSource) Open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error) {
	s.mu.Lock()
	s.ctx, s.lose = context.WithCancelCause(context.Background())
	s.mu.Unlock()
	return s.fakeSource.Open(ctx, from)
}

func (s *keptSource) Lost() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}

func (s *keptSource) cut() {
	s.mu.Lock()
	lose := s.lose
	s.mu.Unlock()
	if lose != nil {
		lose(&event.Fault{Code: "OT2999", Class: event.Retry, Op: "read", Text: "lost"})
	}
}

// TestNothingOvertakesWhateverFailsTogether goes beyond TestNothingIsLostOrOvertakenWhateverIsParked: brokers that stand still, full disks,
// sessions that are lost while nobody reads, replays of several people that are ended or killed, and events that are skipped, all at once.
// OUTTAIL_SEEDS is how many runs.
func TestNothingOvertakesWhateverFailsTogether(t *testing.T) {
	seeds := 400
	if n, err := strconv.Atoi(os.Getenv("OUTTAIL_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failTogether(t, rand.New(rand.NewPCG(uint64(seed), 77))) })
		})
	}
}

var diskFull = &event.Fault{Code: "OT4005", Class: event.Retry, Op: "save", Text: "disk full"}

func failTogether(t *testing.T, rnd *rand.Rand) {
	l := newLot(event.Park)
	defer l.over()
	withSkip := rnd.IntN(3) == 0
	skipped := map[string]bool{}
	written, write, spoil := l.atRandom(rnd)
	l.roomy = rnd.IntN(2) == 0
	if rnd.IntN(4) == 0 {
		l.rate = 200
	}
	l.store.check = func(cp event.Checkpoint) { l.past = append(l.past, cp) }
	var src *keptSource
	l.wrap = func(s *fakeSource) Source { src = &keptSource{fakeSource: s}; return src }
	held := false
	l.tuneSink = func() { l.sink.hold = held }
	type running struct {
		cancel context.CancelFunc
		done   chan struct{}
	}
	var replays []running
	replay := func() {
		ctx, cancel := context.WithCancel(t.Context())
		r := Replay{Canary: max(0, rnd.IntN(6)-3)}
		switch rnd.IntN(5) {
		case 0:
			r.Rate = float64(20 + rnd.IntN(200))
		case 1:
			k := string("ab"[rnd.IntN(2)])
			r.Select = func(e *event.Parked) bool { return keyOf(e.ID) == k }
		case 2:
			m := rnd.IntN(4)
			r.Select = func(e *event.Parked) bool { return len(e.ID)*7%4 != m }
		case 3:
			r.Topic = "t"
		}
		done := make(chan struct{})
		p := l.w.p
		go func() { // ends with the replay
			defer close(done)
			_, _ = p.Replay(ctx, r)
		}()
		replays = append(replays, running{cancel, done})
	}
	full := func(f error) { // both files, or one of them
		if rnd.IntN(3) > 0 || f == nil {
			l.dead.mu.Lock()
			l.dead.fail = f
			l.dead.mu.Unlock()
		}
		if rnd.IntN(3) > 0 || f == nil {
			l.store.mu.Lock()
			l.store.fail = f
			l.store.mu.Unlock()
		}
	}
	l.start()
	for range 3 + rnd.IntN(40) {
		switch rnd.IntN(16) {
		case 0, 1, 2, 3:
			write()
		case 4:
			spoil()
		case 5:
			l.log.cutSessions()
			if rnd.IntN(2) == 0 {
				src.cut()
			}
		case 6, 7, 8:
			replay()
		case 9, 10:
			kill := rnd.IntN(2) == 0
			if !kill {
				full(nil)
				held = false
				l.sink.waits(false)
			}
			if err := l.end(kill); !kill {
				require.NoError(t, err)
			}
			for _, r := range replays {
				<-r.done
			}
			replays = nil
			if rnd.IntN(2) == 0 {
				l.rewind(t, rnd)
			}
			held = rnd.IntN(5) == 0
			l.start()
		case 11:
			held = !held
			l.sink.waits(held)
		case 12:
			full(diskFull)
		case 13:
			full(nil)
		case 14:
			if len(replays) > 0 {
				replays[rnd.IntN(len(replays))].cancel()
			}
		case 15:
			if withSkip {
				k := string("ab"[rnd.IntN(2)])
				m := rnd.IntN(written[k] + 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(50))*time.Millisecond)
				_, _ = l.w.p.SkipParked(ctx, "skipped", func(e *event.Parked) bool {
					if keyOf(e.ID) == k && strings.HasSuffix(e.ID, ":"+strconv.Itoa(m)) {
						skipped[e.ID] = true
						return true
					}
					return false
				})
				cancel()
			}
		}
		pass(time.Duration(rnd.IntN(60)) * time.Millisecond)
	}
	full(nil)
	l.broker.refuse()
	l.route.lose(nil)
	l.sink.waits(false)
	pass(30 * time.Second)
	for _, r := range replays {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		select {
		case <-r.done:
		case <-ctx.Done():
			t.Fatal("a replay hangs")
		}
		cancel()
	}
	waits := l.dead.open()
	slices.Sort(waits)
	require.Len(t, slices.Compact(slices.Clone(waits)), len(waits), "each is parked once: %v", waits)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	res, err := l.w.p.Replay(ctx, Replay{})
	require.NoError(t, err)
	require.Zero(t, res.Failed, "%v", res.First)
	pass(10 * time.Second)
	require.Empty(t, l.dead.open())
	for k, n := range written {
		inOrderBut(t, l.broker.of(k), k, n, skipped)
	}
	require.Empty(t, l.w.p.w.parked.labels)
	require.Zero(t, l.w.p.w.parked.open)
	require.EqualValues(t, len(l.log.txs), l.w.p.Checkpoint().Position.LSN)
	require.NoError(t, l.end(false))
	require.Zero(t, l.w.p.w.out.Load())
}

// inOrderBut is inOrder, where some were left out and may be missing.
func inOrderBut(t require.TestingT, values []string, k string, n int, out map[string]bool) {
	last := map[int]int{}
	for i, v := range values {
		_, number, _ := strings.Cut(v, ":")
		at, err := strconv.Atoi(number)
		require.NoError(t, err)
		for b := range at {
			if _, ok := last[b]; !ok && !out[fmt.Sprintf("%s:%d", k, b)] {
				require.Failf(t, "order", "%d comes before %d in %v", at, b, values)
			}
		}
		last[at] = i
	}
	prev := -1
	for at := range n {
		i, ok := last[at]
		v := fmt.Sprintf("%s:%d", k, at)
		if !ok {
			require.True(t, out[v], "%s is lost: %v", v, values)
			continue
		}
		if out[v] {
			continue // it may have been sent before it was skipped
		}
		require.Less(t, prev, i, "%d comes last before one that precedes it in %v", at, values)
		prev = i
	}
}
