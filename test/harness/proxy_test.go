package harness

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(Patience)))
	return c
}

func say(t *testing.T, c net.Conn, s string) {
	_, err := c.Write([]byte(s))
	require.NoError(t, err)
	b := make([]byte, len(s))
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, s, string(b))
}

func TestProxyCutsAndAcceptsAgain(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	say(t, c, "a")
	require.Equal(t, 1, p.Open())
	p.Cut()
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Zero(t, p.Open())
	say(t, dial(t, p), "b")
	require.Equal(t, 2, p.Accepted())
}

func TestProxyRefusesUntilItResumes(t *testing.T) {
	p := NewProxy(t, echo(t))
	say(t, dial(t, p), "a")
	p.Refuse()
	_, err := net.Dial("tcp", p.Addr())
	require.Error(t, err)
	p.Resume(t)
	say(t, dial(t, p), "b")
}

func TestProxyStallsUntilItResumes(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	say(t, c, "a")
	p.Stall()
	_, err := c.Write([]byte("b"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	p.Resume(t)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(Patience)))
	b := make([]byte, 1)
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, "b", string(b))
}

func TestProxyPassesTheEndOfOneDirection(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	_, err := c.Write([]byte("all"))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "all", string(b))
}
