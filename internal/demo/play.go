package demo

import (
	"context"
	"fmt"
	"time"
)

// play lets the shop work and kills outtail now and then, until the end is wished for; then it waits for what is still
// under way and judges.
func (s *stage) play(crew context.Context) (Verdict, error) {
	screen := newScreen(s.options.Out, s.options.Getenv)
	defer screen.close()

	closed := make(chan struct{}) // no further orders
	gone := make(chan struct{})   // the clerks have left
	began := time.Now()
	s.goes("shop", func() error {
		defer close(gone)
		return s.shop.run(crew, closed)
	})

	a := &act{stage: s, screen: screen, began: began, nextKill: began.Add(s.options.KillEvery)}
	if err := a.sell(); err != nil {
		close(closed)
		return Verdict{}, err
	}
	took := time.Since(began)
	close(closed)
	a.nextKill = time.Time{}
	if err := a.until("closing the shop", drainPatience, func(Tally) bool { return isClosed(gone) }); err != nil {
		return Verdict{}, err
	}
	// What never comes is for the verdict, so patience that runs out is no error.
	if err := a.until("waiting for what is under way", drainPatience, func(t Tally) bool { return t.Behind == 0 }); err != nil {
		return Verdict{}, err
	}
	// Whatever outtail still had to say is said when it has stopped.
	a.closing = "stopping outtail"
	a.draw(a.look(), true)
	if err := s.connector.stop(); err != nil {
		return Verdict{}, err
	}
	if err := a.until(readingToTheEnd, drainPatience, func(Tally) bool { return s.readToTheEnd() }); err != nil {
		return Verdict{}, err
	}
	rows, err := s.shop.rows(crew)
	if err != nil {
		return Verdict{}, interruptedOr(crew, err)
	}
	a.closing = "done"
	a.draw(a.look(), true)
	v := s.checker.Judge(rows)
	v.RolledBack, v.Took = s.shop.rolledBack.Load(), took
	return v, nil
}

// readingToTheEnd is the only wait during which outtail may be gone.
const readingToTheEnd = "reading to the end"

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// act is the part between the first order and the verdict. It belongs to one goroutine.
type act struct {
	*stage
	screen   *screen
	began    time.Time
	drawn    time.Time
	nextKill time.Time // zero: none
	closing  string
	lags     []time.Duration
	lagAt    time.Time
	wound    *wound
}

// wound is a kill from which outtail has not recovered yet.
type wound struct {
	at         time.Time
	duplicates uint64 // absorbed before
	records    uint64 // what the broker had got from the life that ended; whatever comes beyond is the next life's
}

// sell runs until the end is wished for.
func (a *act) sell() error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var end <-chan time.Time
	if a.options.Duration > 0 {
		timer := time.NewTimer(a.options.Duration)
		defer timer.Stop()
		end = timer.C
	}
	for {
		select {
		case <-a.interrupts.now.Done():
			return ErrInterrupted
		case <-a.interrupts.first:
			return nil
		case <-end:
			return nil
		case err := <-a.failed:
			return err
		case <-a.connector.life.ended:
			return endedFault(a.connector.life.outcome(), a.connector.tail())
		case now := <-ticker.C:
			t := a.look()
			if now.After(a.nextKill) {
				if err := a.strike(t); err != nil {
					return err
				}
			}
			a.draw(t, false)
		}
	}
}

// strike kills outtail and starts it again at once.
func (a *act) strike(t Tally) error {
	a.wound = &wound{at: time.Now(), duplicates: t.Duplicates}
	a.checker.Killed()
	a.connector.kill()
	a.kills++
	a.nextKill = time.Now().Add(a.options.KillEvery)
	for _, end := range a.broker.ends() {
		a.wound.records += uint64(end)
	}
	return a.connector.start()
}

// until waits for a condition while arrivals go on; it gives up when nothing arrived for as long as patience.
func (a *act) until(what string, patience time.Duration, reached func(Tally) bool) error {
	a.closing = what
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	last, lastAt := uint64(0), time.Now()
	for {
		t := a.look()
		a.draw(t, false)
		if reached(t) {
			return nil
		}
		if arrivals := t.Delivered + t.Duplicates; arrivals != last {
			last, lastAt = arrivals, time.Now()
		}
		if time.Since(lastAt) > patience {
			return nil
		}
		a.closing = what
		if quiet := time.Since(lastAt); quiet > 2*time.Second {
			a.closing = fmt.Sprintf("%s, nothing arrived for %s of %s", what, span(quiet), span(patience))
		}
		select {
		case <-a.interrupts.now.Done():
			return ErrInterrupted
		case err := <-a.failed:
			return err
		case <-ticker.C:
		}
		if life := a.connector.life; isClosed(life.ended) && what != readingToTheEnd {
			return endedFault(life.outcome(), a.connector.tail())
		}
	}
}

// look takes the state of now and follows rates, lag and recovery.
func (a *act) look() Tally {
	now := time.Now()
	t := a.checker.Tally(now)
	a.rates.add(now, t.Committed, t.Delivered)
	if now.Sub(a.lagAt) >= time.Second {
		a.lags, a.lagAt = append(a.lags, 0), now
		a.lags = a.lags[max(0, len(a.lags)-lagWidth):]
	}
	a.lags[len(a.lags)-1] = max(a.lags[len(a.lags)-1], t.Lag) // a second shows its worst moment
	if w := a.wound; w != nil && t.Lag < caughtUp && t.Delivered+t.Duplicates > w.records {
		a.notes = append(a.notes, fmt.Sprintf("%s  SIGKILL, caught up %s later, %s duplicates absorbed",
			clockTime(w.at.Sub(a.began)), span(now.Sub(w.at)), count(t.Duplicates-w.duplicates)))
		a.wound = nil
	}
	return t
}

func (a *act) draw(t Tally, force bool) {
	now := time.Now()
	if !force && now.Sub(a.drawn) < drawEvery {
		return
	}
	a.drawn = now
	snapshot := Snapshot{
		Tally: t, Elapsed: now.Sub(a.began), Duration: a.options.Duration, RolledBack: a.shop.rolledBack.Load(),
		Kills: a.kills, Lags: a.lags, Notes: a.notes, Closing: a.closing,
		Places: fmt.Sprintf("postgres 127.0.0.1:%d   broker %s   outtail 127.0.0.1:%d/metrics", a.postgres.port, a.broker.address, a.connector.admin),
	}
	snapshot.CommitRate, snapshot.ArrivalRate = a.rates.perSecond()
	if !a.nextKill.IsZero() {
		snapshot.NextKill = max(a.nextKill.Sub(now), time.Millisecond)
	}
	if life := a.connector.life; !isClosed(life.ended) {
		snapshot.Pid, snapshot.Up, snapshot.Memory = life.pid(), now.Sub(life.started), residentBytes(life.pid())
	}
	a.screen.show(snapshot)
}

// rates holds the counters of the last seconds.
type rates struct{ samples []rateSample }

type rateSample struct {
	at                   time.Time
	committed, delivered uint64
}

func (r *rates) add(now time.Time, committed, delivered uint64) {
	r.samples = append(r.samples, rateSample{now, committed, delivered})
	for len(r.samples) > 2 && now.Sub(r.samples[0].at) > recentWindow {
		r.samples = r.samples[1:]
	}
}

func (r *rates) perSecond() (committed, delivered float64) {
	if len(r.samples) < 2 {
		return 0, 0
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	return float64(last.committed-first.committed) / seconds, float64(last.delivered-first.delivered) / seconds
}
