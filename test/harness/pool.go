package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pool holds the servers and the binary that the tests of one test binary share. The first test that asks starts a
// server; Run ends them all. The zero value is ready.
type Pool struct {
	mu      sync.Mutex
	servers map[string]pooled
	binary  string
	dir     string
}

type pooled struct {
	server any
	err    error
	close  func()
}

// Run runs the tests and ends the servers; its result is the exit code.
func (p *Pool) Run(m *testing.M) int {
	code := m.Run()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if s.close != nil {
			s.close()
		}
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	return code
}

// shared starts what key names unless it runs already; a start that failed is not tried again.
func shared[S any](t testing.TB, p *Pool, key string, start func() (S, func(), error)) S {
	t.Helper()
	Required(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.servers[key]
	if !ok {
		v, end, err := start()
		if p.servers == nil {
			p.servers = map[string]pooled{}
		}
		s = pooled{server: v, err: err, close: end}
		p.servers[key] = s
	}
	require.NoError(t, s.err)
	return s.server.(S)
}

// MySQL gives the shared MySQL of default options.
func (p *Pool) MySQL(t testing.TB) *MySQL { t.Helper(); return p.MySQLWith(t, MySQLOptions{}) }

// MySQLWith gives a shared MySQL or MariaDB of these options.
func (p *Pool) MySQLWith(t testing.TB, opts MySQLOptions) *MySQL {
	t.Helper()
	Required(t)
	return shared(t, p, fmt.Sprintf("mysql %v", opts), func() (*MySQL, func(), error) {
		m, err := runMySQL(context.Background(), opts)
		if err != nil {
			return nil, nil, err
		}
		return m, m.close, nil
	})
}

// Postgres gives the shared Postgres of a major version.
func (p *Pool) Postgres(t testing.TB, version string) *Postgres {
	t.Helper()
	return shared(t, p, "postgres "+version, func() (*Postgres, func(), error) {
		s, err := runPostgres(context.Background(), version, PostgresOptions{})
		if err != nil {
			return nil, nil, err
		}
		return s, s.terminate, nil
	})
}

// Kafka gives the shared broker, with a Proxy.
func (p *Pool) Kafka(t testing.TB) *Kafka {
	t.Helper()
	return p.KafkaWith(t, KafkaOptions{Proxied: true})
}

// KafkaWith gives a shared broker of these options.
func (p *Pool) KafkaWith(t testing.TB, opts KafkaOptions) *Kafka {
	t.Helper()
	return shared(t, p, fmt.Sprintf("kafka %v", opts), func() (*Kafka, func(), error) {
		k, err := runKafka(context.Background(), opts)
		if err != nil {
			return nil, nil, err
		}
		return k, k.close, nil
	})
}

// Binary builds cmd/outtail, once, without the race detector, and gives its path. OUTTAIL_BINARY names one built before.
func (p *Pool) Binary(t testing.TB) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.binary != "" {
		return p.binary
	}
	if b := os.Getenv("OUTTAIL_BINARY"); b != "" {
		require.FileExists(t, b, "OUTTAIL_BINARY")
		p.binary = b
		return b
	}
	dir, err := os.MkdirTemp("", "outtail-binary-")
	require.NoError(t, err)
	p.dir = dir
	path := filepath.Join(dir, "outtail")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/outtail")
	cmd.Dir = ModuleRoot(t)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	p.binary = path
	return path
}

// ModuleRoot is the folder of the module's go.mod.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	if filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	out, err := exec.Command("go", "env", "GOMOD").Output() // built with -trimpath
	require.NoError(t, err)
	return filepath.Dir(strings.TrimSpace(string(out)))
}
