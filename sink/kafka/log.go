package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// repeatEvery is how often the same line of the client may come: an outage of hours is not told every 250 ms.
const repeatEvery = 30 * time.Second

// calm is the client's logger. Its Info and Warn lines are Debug here, since it tells a lot of everyday things, and each
// attempt to reach a broker that is down. Its Error lines
// are Warn: what a person must do is told by conditions and failures. The same line comes at a limited rate.
func calm(l *slog.Logger) *slog.Logger {
	return slog.New(&calmed{Handler: l.Handler(), lines: &lines{at: make(map[string]time.Time)}})
}

type calmed struct {
	slog.Handler
	*lines
}

// lines remembers lines by their text, of which the client has a fixed number.
type lines struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (t *lines) again(line string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.at[line]) < repeatEvery {
		return false
	}
	t.at[line] = now
	return true
}

func (h *calmed) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, level(l))
}

func (h *calmed) Handle(ctx context.Context, r slog.Record) error {
	r.Level = level(r.Level)
	if r.Level >= slog.LevelWarn && !h.again(r.Message, r.Time) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func level(l slog.Level) slog.Level {
	if l < slog.LevelError {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

func (h *calmed) WithAttrs(a []slog.Attr) slog.Handler {
	return &calmed{h.Handler.WithAttrs(a), h.lines}
}
func (h *calmed) WithGroup(n string) slog.Handler { return &calmed{h.Handler.WithGroup(n), h.lines} }
