package kafka

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/sink/sinktest"
)

func TestTheClientsLinesAreCalmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := calm(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
		require.False(t, l.Enabled(context.Background(), slog.LevelInfo), "what the client does every day is Debug")
		l.Info("initializing producer id")
		require.Empty(t, out.String())

		l = l.With("broker", 1)
		for range 100 {
			l.Error("unable to open connection", "err", "refused")
			time.Sleep(time.Second)
		}
		require.Equal(t, 4, strings.Count(out.String(), "unable to open connection"), "once in 30 s")
		require.Contains(t, out.String(), "level=WARN")
		require.NotContains(t, out.String(), "level=ERROR", "no person must act on a line of the client's")
		l.Warn("retried")
		require.NotContains(t, out.String(), "retried", "conditions tell what is tried again")
		l.Error("another line")
		require.Contains(t, out.String(), "another line")
	})
}

// heard is a log that is read while it is written.
type heard struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *heard) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *heard) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// A producer that starts again costs time and may cost duplicates: the log says what for.
func TestWhyTheProducerStartedAgainIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*kfake.Cluster)
		why     string
	}{
		"the topic is another one": {func(c *kfake.Cluster) {
			require.NoError(t, c.DeleteTopic("orders"))
			require.NoError(t, c.CreateTopic("orders", 1, nil))
		}, `topic orders (as it was|was deleted and made again)`},
		"the producer is refused": {func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.ProducerFenced, Count: 1})
		}, `OT5017 .*PRODUCER_FENCED`},
	} {
		t.Run(name, func(t *testing.T) {
			cl := cluster(t, kfake.SeedTopics(1, "orders"))
			var said heard
			r := setUp(t, cl, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
			r.send(1, "orders", "a")
			r.flush()
			c.happens(cl)
			r.send(2, "orders", "a")
			r.flush()
			require.Eventually(t, func() bool { return strings.Contains(said.String(), "the producer started again") }, patience, time.Millisecond)
			require.Regexp(t, `msg="the producer started again" why=".*`+c.why, said.String())
		})
	}
	t.Run("the limit is another one", func(t *testing.T) {
		cl := cluster(t)
		require.NoError(t, cl.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "2000"}))
		var said heard
		r := setUp(t, cl, func(o *Options) {
			o.Compression, o.Logger = "none", slog.New(slog.NewTextHandler(&said, nil))
		})
		r.send(1, "orders", "a")
		r.flush()
		alter(t, cl, "orders", "max.message.bytes", "200000")
		r.sendMessage(sinktest.Message(2, "orders", "a", strings.Repeat("2", 100_000)))
		r.flush()
		require.Eventually(t, func() bool {
			return strings.Contains(said.String(), `msg="the producer started again" why="max.message.bytes of topic orders is 200000 now, and was 2000"`)
		}, patience, time.Millisecond, said.String())
	})
}
