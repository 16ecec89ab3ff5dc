package stdout

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a writer that can be blocked.
type gate struct {
	mu  sync.Mutex
	buf bytes.Buffer
	bar sync.RWMutex // write-locked while blocked
}

func (g *gate) Write(p []byte) (int, error) {
	g.bar.RLock()
	defer g.bar.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.Write(p)
}

func (g *gate) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.String()
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T, acks sinktest.Acks, maxBytes int64) sinktest.Subject {
		g := &gate{}
		return sinktest.Subject{
			Sink:    New(g, Options{Acks: acks, MaxBufferedBytes: maxBytes}),
			Topics:  [2]string{"orders", "payments"},
			Arrived: func(t *testing.T) []sinktest.Arrived { return parse(t, g.text()) },
			Block: func(t *testing.T) func() {
				g.bar.Lock()
				var once sync.Once
				unblock := func() { once.Do(g.bar.Unlock) }
				t.Cleanup(unblock)
				return unblock
			},
		}
	})
}

type line struct {
	Topic       string `json:"topic"`
	Partition   *int32 `json:"partition"`
	Key         *string
	KeyBase64   *string `json:"key_base64"`
	Value       *string
	ValueBase64 *string `json:"value_base64"`
	Headers     []struct {
		Name        string
		Value       *string
		ValueBase64 *string `json:"value_base64"`
	}
	Timestamp time.Time
}

func decoded(t require.TestingT, text, encoded *string) []byte {
	switch {
	case text != nil:
		return []byte(*text)
	case encoded != nil:
		b, err := base64.StdEncoding.DecodeString(*encoded)
		require.NoError(t, err)
		return b
	}
	return nil
}

func parse(t require.TestingT, text string) []sinktest.Arrived {
	var all []sinktest.Arrived
	for row := range strings.Lines(text) {
		var l line
		d := json.NewDecoder(strings.NewReader(row))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&l), row)
		a := sinktest.Arrived{Topic: l.Topic, Key: decoded(t, l.Key, l.KeyBase64), Value: decoded(t, l.Value, l.ValueBase64), Timestamp: l.Timestamp}
		for _, h := range l.Headers {
			a.Headers = append(a.Headers, event.Header{Name: h.Name, Value: decoded(t, h.Value, h.ValueBase64)})
		}
		all = append(all, a)
	}
	return all
}

func TestALineIsOneJSONObject(t *testing.T) {
	m := sinktest.Message(1, "orders", "42", `{"a": 1}`)
	m.Partition = 3
	m.Headers = []event.Header{{Name: "id", Value: []byte("7")}, {Name: "raw", Value: []byte{0xff}}, {Name: "null"}}
	m.Timestamp = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	require.Equal(t, `{"topic":"orders","partition":3,"key":"42","value":"{\"a\": 1}",`+
		`"headers":[{"name":"id","value":"7"},{"name":"raw","value_base64":"/w=="},{"name":"null","value":null}],`+
		`"timestamp":"2026-01-02T03:04:05.678Z"}`+"\n", string(appendLine(nil, m)))
}

func TestAnyBytesComeBackFromALine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := sinktest.Message(1, rapid.String().Draw(t, "topic"), "", "")
		m.Key = rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		m.Value = []byte(rapid.String().Draw(t, "value"))
		text := string(appendLine(nil, m))
		require.Equal(t, 1, strings.Count(text, "\n"))
		got := parse(t, text)
		require.Len(t, got, 1)
		require.Equal(t, m.Topic, got[0].Topic)
		require.True(t, bytes.Equal(m.Key, got[0].Key))
		require.True(t, bytes.Equal(m.Value, got[0].Value))
	})
}

func TestAReaderThatWentAwayEndsThePipeline(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	l := sinktest.NewLedger()
	s := New(w, Options{Acks: l})
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	_, err = s.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, sinktest.Send(ctx, s, l, sinktest.Message(4, "orders", "a", "x")))
	require.NoError(t, l.Wait(ctx, func(l *sinktest.Ledger) bool { return len(l.Failures()) == 1 }))
	f := event.AsFault(l.Failures()[4])
	require.NotNil(t, f)
	require.Equal(t, "OT5102", f.Code)
	require.NoError(t, sinktest.Send(ctx, s, l, sinktest.Message(5, "orders", "a", "x")), "the pipeline is told by Failed")
	require.ErrorIs(t, s.Flush(ctx), f)
	require.Zero(t, l.Acks())
	require.NoError(t, s.Close())
	require.Empty(t, l.Illegal())
}

func TestAFailedFlushIsAFailedWrite(t *testing.T) {
	l := sinktest.NewLedger()
	full := errors.New("disk full")
	s := New(flusher{io.Discard, full}, Options{Acks: l})
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	_, err := s.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, sinktest.Send(ctx, s, l, sinktest.Message(1, "orders", "a", "x")))
	require.NoError(t, l.Wait(ctx, func(l *sinktest.Ledger) bool { return len(l.Failures()) == 1 }))
	require.ErrorIs(t, l.Failures()[1], full)
	require.NoError(t, s.Close())
}

type flusher struct {
	io.Writer
	err error
}

func (f flusher) Flush() error { return f.err }

func TestCloseEndsAWriteThatHangsInAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	l := sinktest.NewLedger()
	s := New(w, Options{Acks: l, MaxBufferedBytes: 10 << 20})
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	_, err = s.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, sinktest.Send(ctx, s, l, sinktest.Message(1, "orders", "a", strings.Repeat("x", 1<<20)))) // more than a pipe holds
	require.NoError(t, s.Close())
	require.Zero(t, l.Acks())
}
