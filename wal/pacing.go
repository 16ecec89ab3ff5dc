package wal

import "time"

// A walsender hands every row to the socket by itself. A reader that always waits makes it pay a wake-up and a segment
// for each: 39k rows a second, a whole core of the server. If reads are in bulk from a small receive window instead, the
// kernel merges the small sends while the sender does not wait: 116k and a third of the processor time. That is worth a
// pause only while catching up: then rows are old anyway, and a pause of some milliseconds costs nothing. At low rates
// and where a round trip is long (the window would cap the rate) there is none.
const (
	// paceWindow is the receive window that goes with pacing.
	paceWindow = 56 << 10
	// paceFull is a read after which one reads again at once: the window was closed.
	paceFull = 32 << 10
	// pacePause is how long after a shorter read the next one waits. Where the sender is too slow (it shares its processor)
	// to fill the window in that time, it would go on row by row: each short read after a pause doubles the next pause, up
	// to paceMost, and a full one ends that.
	pacePause = 3 * time.Millisecond
	paceMost  = 12 * time.Millisecond
	// paceVain is how many longest pauses may end in a short read before there are none for paceRest: the sender is starved,
	// or its rows do not merge, and a pause a row would be the slowest way of all to read.
	paceVain = 4
	paceRest = time.Second
	// paceStuck is a wait that nothing but a closed window explains when much comes at its end: it was opened by the sender's
	// probe (200 ms), since no update told of the room. Linux does that to a small buffer that once was full for seconds.
	paceStuck = 100 * time.Millisecond
	// paceProbe is more than a probe ever lets in.
	paceProbe = 128 << 10
	// paceLarge is what is still missing of a message that is too large to be worth merging with others.
	paceLarge = 8 << 10
	// paceRTT is the round trip above which the window would cost more than it gains.
	paceRTT = 300 * time.Microsecond
	// Pacing begins when what arrives is older than paceEnter, and ends below paceLeave.
	paceEnter = 30 * time.Millisecond
	paceLeave = 8 * time.Millisecond
)

// pacer decides how long to wait before a read. It is pure; the zero value never waits. It needs to know nothing of how
// busy the server is: a pause is counted from the last read, so that whoever had to wait for rows does not wait again.
type pacer struct {
	enabled bool
	stuck   int // waits for a probe with little behind each
	since   int // bytes read since the last of them

	paced  bool
	short  bool
	wait   time.Duration // after the last read
	vain   int
	rest   time.Time // until when there are no pauses
	lastAt time.Time
}

// read tells of a read of n bytes that ended at now, when missing bytes of a message were waited for.
func (p *pacer) read(now time.Time, n, missing int) {
	p.lastAt = now
	switch {
	case now.Before(p.rest):
	case missing >= paceLarge:
		p.short, p.vain = false, 0
	case n >= paceFull:
		p.short, p.wait, p.vain = false, pacePause, 0
	case p.short && p.wait < paceMost:
		p.wait = min(2*p.wait, paceMost)
	case p.short:
		if p.vain++; p.vain == paceVain {
			p.short, p.vain, p.rest = false, 0, now.Add(paceRest)
		}
	default:
		p.short, p.wait = true, pacePause
	}
}

// waited tells how long a read of n bytes waited for its first byte. It reports whether the window has to be given up: it is
// opened by probes only. Each of them lets in what the closed window held and what fits behind it at once, so that a long wait
// is followed by some short ones.
func (p *pacer) waited(d time.Duration, n int) bool {
	if !p.enabled {
		return false
	}
	if p.since += n; d < paceStuck || n < paceFull/2 {
		return false
	}
	if p.since-n > paceProbe {
		p.stuck = 0
	}
	p.since = n
	p.stuck++
	return p.stuck == 3
}

// pause is how long to wait now; lag is how old the last transaction was when the server sent it.
func (p *pacer) pause(now time.Time, lag time.Duration) time.Duration {
	if !p.enabled {
		return 0
	}
	switch {
	case lag < paceLeave:
		p.paced = false
	case lag > paceEnter:
		p.paced = true
	}
	if !p.paced || !p.short || now.Before(p.rest) {
		return 0
	}
	return max(0, p.wait-now.Sub(p.lastAt))
}
