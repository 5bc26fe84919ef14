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

// Connections tracks open connections and the certificates that their clients
// presented. When a certificate is revoked, Run closes its connections, and with them
// watches, logs and exec sessions. The zero value is ready to use.
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

// Close closes the connection and removes it from the set.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Listener returns a listener that tracks the connections that l accepts.
func (c *Connections) Listener(l net.Listener) net.Listener { return listener{l, c} }

type listener struct {
	net.Listener
	of *Connections
}

// Accept implements net.Listener.
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

// Context stores the connection in the context of its requests, for Note. Use it as
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

// Note records the certificates that the client of a request's connection presented.
// Call it before checking the list: a later update of the list then finds the
// connection.
func Note(ctx context.Context, chain []*x509.Certificate) {
	if conn, ok := ctx.Value(connectionKey{}).(*connection); ok && conn.chain.Load() == nil {
		conn.chain.Store(&chain)
	}
}

// lookEvery is how often Run looks for a changed list.
const lookEvery = time.Second

// Run closes the connections of revoked certificates until ctx ends. It acts when
// revoked returns a list other than before.
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

// cut closes the connections of revoked certificates.
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
