package pipeline

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// Reason is something that keeps a pipeline from working, and since when.
type Reason struct {
	Key   string
	Fault *event.Fault
	Since time.Time
}

// conditions hold what keeps a pipeline from working now, for /readyz and the state. A condition that comes, changes its
// code or goes is one log line; repetitions are silent, so that an outage of an hour does not fill a disk (I9).
type conditions struct {
	log     *slog.Logger
	changed func(active bool)

	mu  sync.Mutex
	all map[string]Reason
}

// Condition implements Conditions.
func (c *conditions) Condition(key string, f *event.Fault) {
	c.mu.Lock()
	old, had := c.all[key]
	switch {
	case f == nil && !had:
		c.mu.Unlock()
		return
	case f == nil:
		delete(c.all, key)
	case had && old.Fault.Code == f.Code && old.Fault.Place == f.Place:
		old.Fault = f
		c.all[key] = old
		c.mu.Unlock()
		return
	default:
		if c.all == nil {
			c.all = make(map[string]Reason)
		}
		c.all[key] = Reason{Key: key, Fault: f, Since: time.Now()}
	}
	active := len(c.all) > 0
	c.mu.Unlock()
	switch {
	case f == nil:
		c.log.Info("recovered", "code", old.Fault.Code, "place", old.Fault.Place, "after", time.Since(old.Since).Round(time.Millisecond).String())
	case f.Standby:
		c.log.Info("waiting as a standby", "code", f.Code, "text", f.Error(), "hint", f.Hint)
	default:
		c.log.Warn("held up", "code", f.Code, "class", f.Class.String(), "text", f.Error(), "hint", f.Hint)
	}
	c.changed(active)
}

// reasons lists what is wrong, oldest first.
func (c *conditions) reasons() []Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Reason, 0, len(c.all))
	for _, r := range c.all {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Reason) int { return a.Since.Compare(b.Since) })
	return out
}
