package main

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What lives, and 8 MiB or an eighth of it: not twice as much, as by default.
func TestCollectorIsPacedByHeadroom(t *testing.T) {
	t.Setenv("GOGC", "")
	paceCollector()
	for _, mib := range []int{1, 40, 160, 1} {
		alive := make([][]byte, 0, mib)
		for range mib {
			alive = append(alive, make([]byte, 1<<20))
		}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			runtime.GC()
			live, goal := read("/gc/heap/live:bytes"), read("/gc/heap/goal:bytes")
			require.GreaterOrEqual(c, live, uint64(mib)<<20)
			require.LessOrEqual(c, goal, live+max(headroom, live/8)+4<<20)
			require.GreaterOrEqual(c, goal, live+headroom/2)
		}, 10*time.Second, 20*time.Millisecond, "%d MiB", mib)
		runtime.KeepAlive(alive)
	}
}

func TestMemoryIsGivenBackWhenNothingIsToDo(t *testing.T) {
	garbage := make([][]byte, 0, 64)
	for range 64 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		garbage = append(garbage, b)
	}
	before := read("/memory/classes/heap/released:bytes")
	runtime.KeepAlive(garbage)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go calmMemory(ctx)
	require.Eventually(t, func() bool { return read("/memory/classes/heap/released:bytes") > before+48<<20 }, 20*time.Second, 50*time.Millisecond)
}
