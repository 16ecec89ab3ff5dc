package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// poolerScript lets whoever connects become the superuser. The server's image has the pooler.
const poolerScript = `printf '[databases]\n* = %s\n[pgbouncer]\nlisten_addr = *\nlisten_port = 6432\nauth_type = any\npool_mode = %s\nignore_startup_parameters = %s\n' \
  "$SERVER" "$POOL_MODE" "$IGNORE" >/tmp/pgbouncer.ini && exec pgbouncer -u postgres /tmp/pgbouncer.ini`

// StartPooler runs a pgbouncer before a server, in a pool mode and ignoring these startup parameters; it ends with the test. It
// gives the port on Host. Official images have none: there the test is skipped.
func StartPooler(t testing.TB, p *Postgres, mode, ignore string) (port int) {
	t.Helper()
	ctx := context.Background()
	name := postgresImage(p.Version)
	if !strings.HasPrefix(name, "outtail-test/") {
		t.Skipf("the image %s has no pgbouncer", name)
	}
	ip, err := p.c.ContainerIP(ctx)
	require.NoError(t, err)
	s := spec{kind: "pgbouncer", image: name, ports: 1, memory: 256 << 20}
	s.container = func([]int) ([]string, map[string]string, []int) {
		server := fmt.Sprintf("host=%s port=5432 user=postgres password=%s", ip, RootPassword)
		return []string{"bash", "-c", poolerScript}, map[string]string{"SERVER": server, "POOL_MODE": mode, "IGNORE": ignore}, []int{6432}
	}
	c, ports, err := s.run(ctx)
	require.NoError(t, err)
	pooler := &server{c: c, ready: func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(ports[0])))
		if err != nil {
			return err
		}
		defer conn.Close()
		// The engine's forwarder takes connections before anybody listens inside, and then ends them.
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
				return nil
			}
			return err
		}
		return nil
	}}
	t.Cleanup(pooler.terminate)
	require.NoError(t, pooler.await(ctx))
	return ports[0]
}
