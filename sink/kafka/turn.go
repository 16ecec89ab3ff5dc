package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// turnLimit is how many bytes of a partition may be on their way together, where the broker takes less than max.message.bytes was
// thought to be: because it may not be read, or was lowered a moment ago. Each batch above the broker's limit is refused and
// its records go one by one, so a sink that went on as before would spend its time on that for ever. A batch is at most a turn,
// and turns, unlike the client's own cap, can be bounded without refusing a single record above the bound: that one goes alone.
type turnLimit struct {
	bytes     int // 0: no bound
	suspected int // of the turn whose records are being tried alone
}

// take is how many of what waits go together: one at least.
func (l *turnLimit) take(queue []*entry) int {
	if l.bytes == 0 {
		return len(queue)
	}
	sum := 0
	for i, e := range queue {
		if sum += batchSize(e.m); sum > l.bytes && i > 0 {
			return i
		}
	}
	return len(queue)
}

// suspect notes that so many bytes were refused together.
func (l *turnLimit) suspect(bytes int) { l.suspected = max(l.suspected, bytes) }

// innocent: each of those that were refused together was taken alone, so together they were too much.
func (l *turnLimit) innocent() {
	if l.suspected > 0 {
		l.lower(l.suspected / 4)
	}
	l.suspected = 0
}

// culprit: a record of this size was refused alone, which explains why those together with it were.
func (l *turnLimit) culprit(bytes int) {
	l.lower(bytes / 2)
	l.suspected = 0
}

func (l *turnLimit) lower(to int) {
	if to = max(to, 1); l.bytes == 0 || to < l.bytes {
		l.bytes = to
	}
}

// widen tries more, now and then: nobody says when the broker takes more again.
func (l *turnLimit) widen(limit int) {
	if l.bytes *= 2; l.bytes >= limit {
		l.bytes = 0
	}
}

// tooLargeForBroker tells refusals for the size of a batch from others.
func tooLargeForBroker(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}
