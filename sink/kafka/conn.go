package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds one attempt to connect.
const dialTimeout = 10 * time.Second

// dial connects as the client would, and keeps requests from being written while a partition's turn is being handed over.
//
// The client may send the first records of a turn while the last ones are still on their way into it. Were the first refused
// that fast, the last ones would be taken as if nothing had happened. So nothing of a turn leaves before all of it is in.
func (s *Sink) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if s.c.tls != nil {
		if conn, err = s.handshake(ctx, conn, address); err != nil {
			return nil, err
		}
	}
	return gated{conn, &s.gate}, nil
}

func (s *Sink) handshake(ctx context.Context, plain net.Conn, address string) (net.Conn, error) {
	c := s.c.tls.Clone()
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		c.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn := tls.Client(plain, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	return conn, nil
}

// gated is a connection whose writes wait for the turn that is being handed over, if there is one: microseconds.
type gated struct {
	net.Conn
	gate *sync.RWMutex
}

func (g gated) Write(b []byte) (int, error) {
	g.gate.RLock()
	g.gate.RUnlock() //nolint:staticcheck // SA2001: only what was begun before the write has to be over; what begins now is another partition's
	return g.Conn.Write(b)
}
