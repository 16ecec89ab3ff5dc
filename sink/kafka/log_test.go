package kafka

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
