package wal

import "time"

// A walsender hands every row to the socket by itself. A reader that always waits makes it pay a wake-up and a segment
// for each: 39k rows a second, a whole core of the server. If reads are in bulk from a small receive window instead, the
// kernel merges the small sends while the sender does not wait: 116k and a third of the processor time. That is worth a
// pause only while catching up: then rows are old anyway, and a pause of some milliseconds costs nothing. At low rates
// and where a round trip is long (the window would cap the rate) there is none.
const (
	// paceWindow is the receive buffer that goes with pacing, in bytes as given to SO_RCVBUF.
	paceWindow = 32 << 10
	// paceFull is a read after which one reads again at once: the window was closed.
	paceFull = 32 << 10
	// pacePause is how long after a shorter read the next one waits.
	pacePause = 3 * time.Millisecond
	// paceRTT is the round trip above which the window would cost more than it gains.
	paceRTT = 300 * time.Microsecond
	// Pacing begins when what arrives is older than paceEnter and keeps coming, and ends below paceLeave.
	paceEnter = 30 * time.Millisecond
	paceLeave = 8 * time.Millisecond
	// paceBusy is the number of reads in a row that did not have to wait long, after which the source is busy.
	paceBusy = 8
	// paceIdle is a wait that says that nothing more was there.
	paceIdle = 5 * time.Millisecond
)

// pacer decides how long to wait before a read. It is pure; the zero value never waits.
type pacer struct {
	enabled bool

	busy   int
	paced  bool
	short  bool
	lastAt time.Time
}

// read tells of a read of n bytes that ended at now and had to wait for its first byte.
func (p *pacer) read(now time.Time, waited time.Duration, n int) {
	if waited > paceIdle {
		p.busy = 0
	} else if p.busy < paceBusy {
		p.busy++
	}
	p.short = n < paceFull
	p.lastAt = now
}

// pause is how long to wait now; lag is how old the last transaction was when the server sent it.
func (p *pacer) pause(now time.Time, lag time.Duration) time.Duration {
	if !p.enabled {
		return 0
	}
	switch {
	case p.busy < paceBusy || lag < paceLeave:
		p.paced = false
	case lag > paceEnter:
		p.paced = true
	}
	if !p.paced || !p.short {
		return 0
	}
	return max(0, pacePause-now.Sub(p.lastAt))
}
