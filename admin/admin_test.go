package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outtail/outtail/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	since   = time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("", 3600))
)

func options(status ...PipelineStatus) Options {
	return Options{
		Listen:  "127.0.0.1:0",
		Version: "v1<b>",
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "outtail_build_info 1\n") }),
		Status:  func() []PipelineStatus { return status },
		Now:     func() time.Time { return started },
	}
}

func ask(method, path string, o Options) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	routes(o, started).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestReadyz(t *testing.T) {
	streaming := PipelineStatus{Name: "orders", State: "streaming", Ready: true}
	degraded := PipelineStatus{Name: "stock", State: "degraded", Reasons: []Reason{
		{Code: "OT5003", Text: "topic <stock> is missing", Since: since}, {Code: "OT5001", Text: "broker is down", Since: since, Hint: "start it"},
	}}
	cases := []struct {
		name   string
		status []PipelineStatus
		code   int
		body   string
	}{
		{"every pipeline is ready", []PipelineStatus{streaming}, 200, `[]`},
		{"a standby is ready whatever its state is called", []PipelineStatus{{Name: "orders", State: "starting", Ready: true}}, 200, `[]`},
		{"one is not", []PipelineStatus{streaming, degraded}, 503, `[` +
			`{"pipeline":"stock","code":"OT5003","text":"topic <stock> is missing","since":"2026-03-01T12:00:00Z"},` +
			`{"pipeline":"stock","code":"OT5001","text":"broker is down","since":"2026-03-01T12:00:00Z","hint":"start it"}]`},
		{"one is not and says no reason", []PipelineStatus{{Name: "orders", State: "starting"}}, 503,
			`[{"pipeline":"orders","code":"OT7002","text":"the pipeline is starting","since":"2026-03-01T12:00:00Z"}]`},
		{"none runs yet", nil, 503, `[{"code":"OT7002","text":"no pipeline runs yet","since":"2026-03-01T12:00:00Z"}]`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := ask("GET", "/readyz", options(c.status...))
			require.Equal(t, c.code, w.Code)
			require.Equal(t, c.body+"\n", w.Body.String())
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		})
	}
}

func TestEndpoints(t *testing.T) {
	cases := []struct {
		method, path string
		code         int
		contains     string
	}{
		{"GET", "/healthz", 200, "ok\n"},
		{"HEAD", "/healthz", 200, ""},
		{"GET", "/metrics", 200, "outtail_build_info 1"},
		{"GET", "/", 200, `<a href="/readyz">`},
		{"GET", "/", 200, "outtail v1&lt;b&gt;"},
		{"GET", "/nothing", 404, ""},
		{"POST", "/healthz", 405, ""},
		{"DELETE", "/metrics", 405, ""},
		{"PUT", "/nothing", 405, ""},
	}
	for _, c := range cases {
		t.Run(c.method+c.path, func(t *testing.T) {
			w := ask(c.method, c.path, options())
			require.Equal(t, c.code, w.Code)
			require.Contains(t, w.Body.String(), c.contains)
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		})
	}
}

func TestServeAndShutdown(t *testing.T) {
	s, err := Serve(options())
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + s.Addr() + "/healthz")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "ok\n", string(body))

	require.NoError(t, s.Shutdown(t.Context()))
	_, err = client.Get("http://" + s.Addr() + "/healthz")
	require.Error(t, err)
}

func TestShutdownFinishesWhatItBeganAndCutsWhatDoesNotEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  bool
	}{{"finishes", false}, {"cuts", true}} {
		t.Run(c.name, func(t *testing.T) {
			began, finish := make(chan struct{}), make(chan struct{})
			o := options()
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(began)
				select {
				case <-finish:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "done")
			})
			s, err := Serve(o)
			require.NoError(t, err)
			got := make(chan string, 1)
			go func() {
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				resp, err := client.Get("http://" + s.Addr() + "/metrics")
				if err != nil {
					got <- "cut"
					return
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				got <- string(b)
			}()
			<-began
			if c.cut {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
				require.Equal(t, "cut", <-got)
				return
			}
			closed := make(chan error, 1)
			go func() { closed <- s.Shutdown(context.Background()) }()
			close(finish)
			require.Equal(t, "done", <-got)
			require.NoError(t, <-closed)
		})
	}
}

func TestAnAddressThatCannotBeUsed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for name, c := range map[string]struct{ listen, text string }{
		"in use":               {taken.Addr().String(), "in use"},
		"not of this machine":  {"192.0.2.1:80", "does not have that address"},
		"not an address":       {"localhost", "cannot be used"},
		"a port out of bounds": {"127.0.0.1:99999", "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Listen = c.listen
			_, err := Serve(o)
			f := event.AsFault(err)
			require.NotNil(t, f, "%v", err)
			require.Equal(t, CodeListen, f.Code)
			require.Equal(t, event.Environment, f.Class)
			require.True(t, f.Immediate)
			require.Equal(t, c.listen, f.Place)
			require.Contains(t, f.Text, c.text)
			require.NotEmpty(t, f.Hint)
		})
	}
}

func TestTurnedOff(t *testing.T) {
	s, err := Serve(Options{})
	require.NoError(t, err)
	require.Nil(t, s)
	require.Empty(t, s.Addr())
	require.NoError(t, s.Shutdown(t.Context()))
}

func TestAClientThatSaysNothingIsBounded(t *testing.T) {
	s, err := Serve(options())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Shutdown(t.Context())) }()
	for name, d := range map[string]time.Duration{
		"header": s.http.ReadHeaderTimeout, "read": s.http.ReadTimeout, "write": s.http.WriteTimeout, "idle": s.http.IdleTimeout,
	} {
		require.Positive(t, d, name)
		require.LessOrEqual(t, d, time.Minute, name)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/healthz?"+strings.Repeat("x", 100), nil)
	s.http.Handler.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code)
}
