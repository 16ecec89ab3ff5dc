package harness

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy is a TCP proxy that stands between a client and a server and misbehaves when told to. Its address stays the same.
type Proxy struct {
	addr string

	mu       sync.Mutex
	target   string
	changed  *sync.Cond // a stall that ends, a connection that is cut
	listener net.Listener
	conns    map[*proxied]struct{}
	stalled  bool
	accepted int
	closed   bool
	wg       sync.WaitGroup // accept loops and copies; each ends when its sockets are closed
}

type proxied struct {
	client, server net.Conn
	cut, halved    bool // closed; closed in one direction
	orphaned       bool // the server's side is closed
}

// NewProxy starts a proxy before target (host:port); it ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	port, err := FreePort()
	require.NoError(t, err)
	p, err := newProxy(net.JoinHostPort(host, strconv.Itoa(port)), target)
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

func newProxy(addr, target string) (*Proxy, error) {
	p := &Proxy{addr: addr, target: target, conns: map[*proxied]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	return p, p.listen()
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Port is the port of Addr.
func (p *Proxy) Port() int {
	_, port, _ := net.SplitHostPort(p.addr)
	n, _ := strconv.Atoi(port)
	return n
}

// Accepted counts the connections that were accepted so far.
func (p *Proxy) Accepted() int { p.mu.Lock(); defer p.mu.Unlock(); return p.accepted }

// Open counts the connections that are open now.
func (p *Proxy) Open() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.conns) }

// Point makes another server (host:port) the target and closes all connections, as an address that moves in a failover does.
func (p *Proxy) Point(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

// Cut closes all connections; new ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.end(c)
	}
}

// Orphan ends the server's sides of all connections. The clients' stay open, and take what is written: a forwarder that could not pass on
// all that the server said does not tell that it is gone.
func (p *Proxy) Orphan() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.orphaned = true
		_ = c.server.Close()
	}
}

// Refuse closes all connections and refuses new ones until Resume.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
}

// Stall keeps connections open and accepts new ones, but lets no byte through until Resume.
func (p *Proxy) Stall() { p.mu.Lock(); defer p.mu.Unlock(); p.stalled = true }

// Resume ends Refuse and Stall.
func (p *Proxy) Resume(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	p.stalled = false
	p.changed.Broadcast()
	refused := p.listener == nil && !p.closed
	p.mu.Unlock()
	if refused {
		require.NoError(t, p.listen())
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.wg.Wait()
}

func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.wg.Add(1)
	go p.accept(l)
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	defer p.wg.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			return // Refuse or close
		}
		p.wg.Add(1)
		go p.serve(c, l)
	}
}

// serve joins one client to the server.
func (p *Proxy) serve(c net.Conn, l net.Listener) {
	defer p.wg.Done()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	s, err := net.Dial("tcp", target)
	if err != nil {
		_ = c.Close()
		return
	}
	x := &proxied{client: c, server: s}
	p.mu.Lock()
	p.accepted++
	if p.listener != l || p.target != target { // refused, or moved, while we dialled
		p.end(x)
		p.mu.Unlock()
		return
	}
	p.conns[x] = struct{}{}
	p.wg.Add(2)
	p.mu.Unlock()
	go p.copy(x, s, c)
	go p.copy(x, c, s)
}

func (p *Proxy) copy(x *proxied, to, from net.Conn) {
	defer p.wg.Done()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.stalled && !x.cut {
			p.changed.Wait()
		}
		orphaned := x.orphaned
		p.mu.Unlock()
		if orphaned && from == x.client && err == nil {
			continue
		}
		if orphaned && from == x.server {
			return
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if errors.Is(err, io.EOF) {
			// The other direction may still have something to say.
			if tcp, ok := to.(*net.TCPConn); ok && tcp.CloseWrite() == nil && p.half(x) {
				return
			}
		}
		if err != nil {
			p.mu.Lock()
			p.end(x)
			p.mu.Unlock()
			return
		}
	}
}

// half reports whether the connection lives on in one direction: true for the first side that closes.
func (p *Proxy) half(x *proxied) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !x.cut && !x.halved
	x.halved = true
	return first
}

// end closes both sides. The caller holds mu.
func (p *Proxy) end(x *proxied) {
	x.cut = true
	_ = x.client.Close()
	_ = x.server.Close()
	delete(p.conns, x)
	p.changed.Broadcast()
}
