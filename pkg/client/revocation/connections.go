package revocation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Connections are the open ones, with the certificates their clients have
// shown. When a certificate is revoked, what hangs on its connections ends with
// them: watches, logs, shells.
type Connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

// connection is one connection below TLS.
type connection struct {
	net.Conn
	of    *Connections
	chain atomic.Pointer[[]*x509.Certificate]
}

// Close closes and forgets the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Listener gives l's connections, noted.
func (c *Connections) Listener(l net.Listener) net.Listener { return listener{l, c} }

type listener struct {
	net.Listener
	of *Connections
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: raw, of: l.of}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.open == nil {
		l.of.open = map[*connection]bool{}
	}
	l.of.open[conn] = true
	return conn, nil
}

type connectionKey struct{}

// Context tells the requests of a connection which one it is; it is made to be
// http.Server's ConnContext.
func (c *Connections) Context(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if own, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, own)
	}
	return ctx
}

// Note remembers which certificates the client of a request's connection has
// shown. Call it before the check of the list: an update of the list that comes
// later then finds the connection.
func Note(ctx context.Context, chain []*x509.Certificate) {
	if conn, ok := ctx.Value(connectionKey{}).(*connection); ok && conn.chain.Load() == nil {
		conn.chain.Store(&chain)
	}
}

// lookEvery is how soon a revoked certificate's connections are cut.
const lookEvery = time.Second

// Run cuts the connections of revoked certificates until ctx ends.
func (c *Connections) Run(ctx context.Context, revoked func() *List) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := revoked()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := revoked(); now != last {
			last = now
			c.cut(now)
		}
	}
}

func (c *Connections) cut(revoked *List) {
	var bad []*connection
	c.mu.Lock()
	for conn := range c.open {
		if chain := conn.chain.Load(); chain != nil && revoked.Any(*chain) {
			bad = append(bad, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range bad {
		conn.Close()
	}
}
