package simulation

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// network connects clients and servers, which have names.
type network struct {
	mu      sync.Mutex
	servers map[string]*listener
}

func newNetwork() *network { return &network{servers: map[string]*listener{}} }

// listen replaces the server of that name.
func (n *network) listen(name string) *listener {
	l := &listener{accept: make(chan net.Conn), closed: make(chan struct{}), conns: map[net.Conn]bool{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[name] = l
	return l
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l := n.servers[name]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	if !l.keep(theirs) {
		return nil, refused
	}
	select {
	case l.accept <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) transport() *http.Transport {
	return &http.Transport{
		DialContext: n.dial, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}
}

// listener is a server's end of the network.
type listener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return &serverConn{c, l}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// keep tracks a connection. It returns false if the server is dead.
func (l *listener) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dead {
		l.conns[c] = true
	}
	return !l.dead
}

// cut closes everything at once, as the death of the process would.
func (l *listener) cut() {
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		c.Close()
	}
	clear(l.conns)
}

// serverConn removes itself from the listener when it is closed.
type serverConn struct {
	net.Conn
	l *listener
}

func (c *serverConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c.Conn)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

var errReset = errors.New("connection reset by peer")
