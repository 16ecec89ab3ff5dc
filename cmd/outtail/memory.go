package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector's usual rule, a heap of twice what lives, wastes memory where much lives (32 MiB of large payloads in flight) and time
// where little does. Here it runs when headroom has been allocated, or an eighth of what lives if that is more (I11): what lives is mostly
// payloads, in which there is nothing to mark, so that a collection costs about the same whatever their size.
const headroom = 8 << 20

// paceCollector keeps that rule after each collection. GOGC, where it is set, wins; GOMEMLIMIT holds besides.
func paceCollector() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := 0
	var again func(*sentinel)
	again = func(*sentinel) {
		live := max(read("/gc/heap/live:bytes"), 1<<20)
		room := max(headroom, live/8)
		// The runtime also knows a smallest heap, of 4 MiB times the percentage.
		if p := int(min(100*room/live, 100*(live+room)/(4<<20))); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
		runtime.SetFinalizer(&sentinel{}, again)
	}
	again(nil)
}

// sentinel is garbage at once: its finalizer tells of the next collection. It has a pointer since tiny objects share their memory.
type sentinel struct{ _ *byte }

// read gives a number of the runtime's.
func read(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

const (
	// calmEvery is how often calmMemory looks, calmBytes what is allocated at most in that time while there is nothing to do.
	calmEvery = time.Second
	calmBytes = 1 << 20
	// worthBytes is what must have been allocated since memory was given back last.
	worthBytes = 8 << 20
)

// calmMemory gives what a backlog took back to the system when there is nothing left to do: the collector itself runs only when the heap
// has grown, and what it freed stays with the process for minutes.
func calmMemory(ctx context.Context) {
	tick := time.NewTicker(calmEvery)
	defer tick.Stop()
	var last, freed uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := read("/gc/heap/allocs:bytes")
		if now-last < calmBytes && now-freed > worthBytes {
			runtime.GC() // a pool is emptied by the second collection
			debug.FreeOSMemory()
			now = read("/gc/heap/allocs:bytes")
			freed = now
		}
		last = now
	}
}
