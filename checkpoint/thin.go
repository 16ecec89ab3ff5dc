package checkpoint

import "time"

// How many positions of the past are kept: all of the last hour (one is recorded per minute), then one per hour, day and
// month of 30 days. maxRecent bounds the first step where the clock was set back again and again.
const (
	historyEvery = time.Minute
	maxRecent    = 120
)

var historySteps = []struct{ age, unit time.Duration }{
	{48 * time.Hour, time.Hour},
	{60 * 24 * time.Hour, 24 * time.Hour},
	{3 * 360 * 24 * time.Hour, 30 * 24 * time.Hour},
}

// maxHistory is how many records a history never exceeds; each step may begin and end within a unit.
const maxHistory = maxRecent + 49 + 61 + 38

// thin says which of the times (ascending) to keep at now. It keeps the first of each unit, so that thinning again later
// never loses a record that an earlier thinning chose, except by its growing age. Times after now (the clock was set
// back) count as recent.
func thin(times []time.Time, now time.Time) []bool {
	keep := make([]bool, len(times))
	recent := 0
	for i := len(times) - 1; i >= 0; i-- {
		if now.Sub(times[i]) > time.Hour {
			break
		}
		if recent++; recent <= maxRecent {
			keep[i] = true
		}
	}
	var lastUnit time.Duration
	var lastSlot time.Time
	for i, t := range times {
		age := now.Sub(t)
		if age <= time.Hour {
			break
		}
		for _, step := range historySteps {
			if age > step.age {
				continue
			}
			slot := t.UTC().Truncate(step.unit)
			if step.unit != lastUnit || !slot.Equal(lastSlot) {
				keep[i] = true
				lastUnit, lastSlot = step.unit, slot
			}
			break
		}
	}
	return keep
}

// historyDue reports whether a record is due: a minute after the last one, or at once where the clock was set back.
func historyDue(last, now time.Time) bool {
	return now.Before(last) || now.Sub(last) >= historyEvery
}
