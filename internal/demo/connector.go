package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// readyPatience is how long outtail may take to its first readiness.
const readyPatience = 90 * time.Second

// configuration is what the demo's outtail runs with: a complete example in few lines.
const configuration = `# written by outtail demo
data_dir: %s
admin: { listen: 127.0.0.1:%d }
pipelines:
  - name: orders
    source:
      postgres:
        host: 127.0.0.1
        port: %d
        user: outtail
        password: ${env:PGPASSWORD}
        database: shop
        tls: { mode: disable }
        tables: [public.outbox]
        create: true
        start: now
    columns: outtail
    routes:
      - match: { event_type: order.created }
        topic: %s
    sink:
      kafka:
        brokers: ["%s"]
`

// connector is outtail as a process of its own, with one life after the other on the same data_dir.
type connector struct {
	nursery  *nursery
	binary   string
	config   string // path
	password string
	log      string
	admin    int
	life     *child
}

func newConnector(n *nursery, binary, folder string, p *postgres, b *broker) (*connector, error) {
	if binary == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, notReadyFault("the path of the running program cannot be told: "+err.Error(), "")
		}
		binary = own
	}
	admin, err := freePort()
	if err != nil {
		return nil, brokerFault(err)
	}
	c := &connector{
		nursery: n, binary: binary, config: filepath.Join(folder, "outtail.yaml"), password: p.password,
		log: filepath.Join(folder, "outtail.log"), admin: admin,
	}
	text := fmt.Sprintf(configuration, filepath.Join(folder, "data"), admin, p.port, topic, b.address)
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		return nil, workspaceFault(err)
	}
	return c, nil
}

// start begins a life.
func (c *connector) start() error {
	cmd := exec.Command(c.binary, "run", "-c", c.config)
	cmd.Dir = filepath.Dir(c.config)
	cmd.Env = append(withoutPostgres(os.Environ()), "PGPASSWORD="+c.password)
	life, err := c.nursery.run(cmd, c.log, syscall.SIGKILL)
	if err != nil {
		return notReadyFault("it cannot be started: "+err.Error(), "")
	}
	c.life = life
	return nil
}

// withoutPostgres drops the user's PG* variables, which mean other servers.
func withoutPostgres(environment []string) []string {
	var kept []string
	for _, v := range environment {
		if !strings.HasPrefix(v, "PG") {
			kept = append(kept, v)
		}
	}
	return kept
}

// awaitReady waits for the first /readyz of 200: from then on the position is saved and nothing that is committed may
// be missed.
func (c *connector) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{}} // loopback: no proxy
	defer client.CloseIdleConnections()
	reason := "it did not answer"
	for {
		ready, why := c.ready(ctx, client)
		if ready {
			return nil
		}
		if why != "" {
			reason = why
		}
		select {
		case <-c.life.ended:
			return notReadyFault("it ended with "+c.life.outcome(), c.tail())
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return notReadyFault(fmt.Sprintf("it was not ready within %s: %s", readyPatience, reason), c.tail())
			}
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *connector) ready(ctx context.Context, client *http.Client) (bool, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", c.admin), nil)
	if err != nil {
		return false, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return false, ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1024)) // for people only
	return response.StatusCode == http.StatusOK, strings.TrimSpace(string(body))
}

// kill ends a life.
func (c *connector) kill() { c.life.kill() }

// stop asks for a clean stop and reports whether there was one.
func (c *connector) stop() error {
	if c.life == nil {
		return nil
	}
	select {
	case <-c.life.ended:
		return endedFault(c.life.outcome(), c.tail())
	default:
	}
	c.life.stop(20*time.Second, syscall.SIGTERM)
	if c.life.err != nil {
		return endedFault("a clean stop gave "+c.life.outcome(), c.tail())
	}
	return nil
}

func (c *connector) tail() string { return logTail(c.log, 12) }
