package harness

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary itself plays outtail: TestMain of a child process runs a part instead of the tests.
func play(part string) int {
	fmt.Println("out")
	fmt.Fprintln(os.Stderr, "err")
	switch part {
	case "exit 3":
		return 3
	case "serve":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		mux := http.NewServeMux()
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
		mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "# HELP x_total y\nx_total{a=\"1\",b=\"2\"} 3\nx_total{a=\"1\",b=\"3\"} 4\nx_total_more 9\n")
		})
		go func() { _ = http.ListenAndServe(os.Getenv("ADMIN"), mux) }()
		<-stop
	}
	return 0
}

func player(t *testing.T, part string) *Outtail {
	self, err := os.Executable()
	require.NoError(t, err)
	o := NewOuttail(t, self, "data_dir: {{.DataDir}}\nx: {{.X}}", map[string]any{"X": 1})
	o.Env = []string{"OUTTAIL_HARNESS_PART=" + part, "ADMIN=" + o.Admin}
	return o
}

func TestProcessExitCodeAndOutput(t *testing.T) {
	o := player(t, "exit 3")
	b, err := os.ReadFile(o.Config)
	require.NoError(t, err)
	require.Equal(t, "data_dir: "+o.DataDir+"\nx: 1", string(b))
	r := o.Run(t, "anything")
	require.Equal(t, Result{Code: 3, Stdout: "out\n", Stderr: "err\n"}, r)
}

func TestProcessReadyMetricsAndSignals(t *testing.T) {
	o := player(t, "serve")
	status, _ := o.Get(t, "/readyz")
	require.Zero(t, status, "nobody listens yet")
	p := o.Start(t)
	p.WaitReady(t)
	require.InDelta(t, 7, o.Metric(t, "x_total"), 0)
	require.InDelta(t, 4, o.Metric(t, "x_total", `a="1"`, `b="3"`), 0)
	require.Zero(t, o.Metric(t, "x_total", `b="4"`))
	require.Greater(t, p.PeakRSS(t), int64(1<<20))
	require.Equal(t, 0, p.Terminate(t).Code)
	require.Greater(t, p.PeakRSS(t), int64(1<<20), "also once it has ended")
	require.False(t, p.Running())

	p = o.Start(t)
	p.WaitReady(t)
	r := p.Kill(t)
	require.Equal(t, syscall.SIGKILL, r.Signal)
	require.Equal(t, -1, r.Code)
}
