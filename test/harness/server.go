package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
	tclog "github.com/testcontainers/testcontainers-go/log"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// Patience is how long the harness waits for anything that should happen: long, since machines are slow and loaded, and
// only a test that fails anyway waits that long.
const Patience = 2 * time.Minute

const (
	host       = "127.0.0.1"
	labelOwner = "outtail.test.owner" // "<host name>/<pid>" of the test binary that started a container
)

// Required skips the test where no servers were prepared.
func Required(t testing.TB) {
	t.Helper()
	if os.Getenv("OUTTAIL_SERVERS") == "" {
		t.Skip("needs real servers: set -a; . <(test/images/setup.sh); set +a")
	}
}

// server is one container whose ports on the loopback address stay the same over kill and start.
type server struct {
	c     *testcontainers.DockerContainer
	ready func(ctx context.Context) error // nil error: clients are served
}

// spec says what container to run. Ports are the same number inside and outside where a server tells clients where it
// is; request maps them, given the numbers chosen.
type spec struct {
	kind  string
	image string
	ports int // how many host ports
	// container gives, for chosen host ports, the command, the environment and the container's ports in the same order.
	container func(ports []int) (cmd []string, env map[string]string, inside []int)
	memory    int64
	files     map[string]string
	// network, where not "", is one of the test's own, in which others know the container as alias.
	network, alias string
	// direct shares the host's network: the server itself listens on the loopback address, on the chosen ports, and no forwarder of the
	// engine stands before it. Linux only.
	direct bool
}

var quiet = sync.OnceFunc(func() { tclog.SetDefault(tclog.NewNoopLogger()) })

// run starts the container; another process may take a chosen port in between, so a few sets are tried.
func (s spec) run(ctx context.Context) (*testcontainers.DockerContainer, []int, error) {
	quiet()
	sweep(ctx)
	var last error
	for range 5 {
		ports := make([]int, s.ports)
		for i := range ports {
			p, err := FreePort()
			if err != nil {
				return nil, nil, err
			}
			ports[i] = p
		}
		cmd, env, inside := s.container(ports)
		bindings, exposed := network.PortMap{}, []string{}
		if s.direct {
			inside = nil
		}
		for i, p := range inside {
			name := strconv.Itoa(p) + "/tcp"
			exposed = append(exposed, name)
			bindings[network.MustParsePort(name)] = []network.PortBinding{{HostIP: netip.MustParseAddr(host), HostPort: strconv.Itoa(ports[i])}}
		}
		opts := []testcontainers.ContainerCustomizer{
			testcontainers.WithName("outtail-test-" + s.kind + "-" + Unique()),
			testcontainers.WithLabels(map[string]string{labelOwner: owner()}),
			testcontainers.WithExposedPorts(exposed...),
			testcontainers.WithEnv(env),
			testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
				hc.PortBindings = bindings
				hc.Memory = s.memory
				if s.direct {
					hc.NetworkMode = "host"
				}
			}),
		}
		for path, content := range s.files {
			opts = append(opts, testcontainers.WithFiles(testcontainers.ContainerFile{Reader: strings.NewReader(content), ContainerFilePath: path, FileMode: 0o644}))
		}
		if s.network != "" {
			opts = append(opts, tcnetwork.WithNetworkName([]string{s.alias}, s.network))
		}
		if cmd != nil {
			opts = append(opts, testcontainers.WithCmd(cmd...))
		}
		c, err := testcontainers.Run(ctx, s.image, opts...)
		if err == nil {
			return c, ports, nil
		}
		last = err
		_ = testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0))
		if text := err.Error(); !strings.Contains(text, "address already in use") && !strings.Contains(text, "port is already allocated") {
			break
		}
	}
	return nil, nil, fmt.Errorf("run %s from %s: %w", s.kind, s.image, last)
}

// await polls ready until it succeeds; on failure the error carries the end of the server's log.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var last error
	for {
		try, stop := context.WithTimeout(ctx, 10*time.Second)
		err := s.ready(try)
		stop()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not serve: %w\n%s", errors.Join(last, ctx.Err()), s.log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) log() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := s.c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	b, _ := io.ReadAll(r)
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return string(b)
}

// logFailure shows what the server said last if the test fails.
func (s *server) logFailure(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", s.log())
		}
	})
}

func (s *server) terminate() {
	_ = testcontainers.TerminateContainer(s.c, testcontainers.StopTimeout(0))
}

// do runs one call to the engine. A busy one says no now and then (a container that cannot be frozen at this moment, a
// port that is not free again yet), so it is asked again.
func (s *server) do(t testing.TB, what string, f func(ctx context.Context, api *testcontainers.DockerClient, id string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	api, err := testcontainers.NewDockerClientWithOpts(ctx)
	require.NoError(t, err)
	defer api.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if err = f(ctx, api, s.c.GetContainerID()); err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(t, err, what)
		}
	}
}

// Feed runs a command line inside the server's container with this on its standard input, as a pipe would, and gives all that it printed.
func (s *server) Feed(t testing.TB, command, input string) string {
	t.Helper()
	path := "/tmp/input-" + Unique()
	require.NoError(t, s.c.CopyToContainer(t.Context(), []byte(input), path, 0o644))
	code, r, err := s.c.Exec(t.Context(), []string{"sh", "-c", command + " <" + path + " 2>&1; code=$?; rm -f " + path + "; exit $code"}, tcexec.Multiplexed())
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Zero(t, code, "%s: %s", command, b)
	return string(b)
}

// Kill ends the server with SIGKILL, as a power cut of the process would; its data stays.
func (s *server) Kill(t testing.TB) {
	t.Helper()
	s.do(t, "kill", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
		if _, err := api.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		for {
			in, err := api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
			if err != nil || !in.Container.State.Running {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

// Start starts the server again after Kill or Stop, on the same ports, and waits until it serves.
func (s *server) Start(t testing.TB) {
	t.Helper()
	s.do(t, "start", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
		_, err := api.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
	require.NoError(t, s.await(context.Background()))
}

// Stop ends the server in its own orderly way.
func (s *server) Stop(t testing.TB) {
	t.Helper()
	s.do(t, "stop", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
		seconds := 60
		_, err := api.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &seconds})
		return err
	})
}

// CPUSeconds is what the server has used so far, all of its processes together.
func (s *server) CPUSeconds(t testing.TB) (n float64) {
	t.Helper()
	s.do(t, "stats", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
		r, err := api.ContainerStats(ctx, id, client.ContainerStatsOptions{})
		if err != nil {
			return err
		}
		defer r.Body.Close()
		var stats container.StatsResponse
		if err := json.NewDecoder(r.Body).Decode(&stats); err != nil {
			return err
		}
		n = time.Duration(stats.CPUStats.CPUUsage.TotalUsage).Seconds()
		return nil
	})
	return n
}

// Restart is Stop and Start.
func (s *server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.Start(t)
}

// Pause freezes the server: connections stay open and nothing answers. A test that ends meanwhile thaws it.
func (s *server) Pause(t testing.TB) {
	t.Helper()
	s.do(t, "pause", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
		_, err := api.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	})
	t.Cleanup(func() {
		s.do(t, "unpause", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
			in, err := api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
			if err == nil && in.Container.State.Paused {
				_, err = api.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
			}
			return err
		})
	})
}

// Unpause thaws a paused server.
func (s *server) Unpause(t testing.TB) {
	t.Helper()
	s.do(t, "unpause", func(ctx context.Context, api *testcontainers.DockerClient, id string) error {
		_, err := api.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

// FreePort finds a loopback port that nothing listens on, below the range from which the kernel takes the ports of
// outgoing connections: one of those could take a killed server's port before the server is back.
func FreePort() (int, error) {
	for range 200 {
		p := 11000 + mathrand.IntN(21000)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err == nil {
			return p, l.Close()
		}
	}
	return 0, errors.New("no free port on the loopback address")
}

// Unique is a short name part that no other test has.
func Unique() string {
	var b [5]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func owner() string {
	name, _ := os.Hostname()
	return name + "/" + strconv.Itoa(os.Getpid())
}

var swept sync.Once

// sweep removes, once per process, what test binaries of this machine left behind that were killed.
func sweep(ctx context.Context) {
	swept.Do(func() {
		api, err := testcontainers.NewDockerClientWithOpts(ctx)
		if err != nil {
			return
		}
		defer api.Close()
		list, err := api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelOwner)})
		if err != nil {
			return
		}
		for _, c := range list.Items {
			name, pid, _ := strings.Cut(c.Labels[labelOwner], "/")
			me, _ := os.Hostname()
			n, err := strconv.Atoi(pid)
			if err != nil || name != me || !errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
				continue
			}
			_, _ = api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	})
}

func image(variable, official string) string {
	if v := os.Getenv(variable); v != "" {
		return v
	}
	return official
}
