package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// Dial sends a request with an Upgrade header (exec, attach, port-forward, over SPDY
// or WebSocket: the caller sets the headers) and returns the connection once the
// server has switched protocols. ctx bounds the handshake only. Any other answer is
// an error, as in Do, except that an answer below 300 without a switch is returned as
// a response with an open body and a nil connection.
func (c *Client) Dial(ctx context.Context, r Request) (net.Conn, *http.Response, error) {
	var mu sync.Mutex
	var raw net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		raw = i.Conn
	}})
	resp, err := c.dialServers(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, resp, nil
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		resp.Body.Close()
		return nil, nil, fmt.Errorf("%s %s: the transport cannot switch protocols", r.method(), r.Path)
	}
	mu.Lock()
	defer mu.Unlock()
	resp.Body = http.NoBody
	return &upgraded{stream: stream, raw: raw}, resp, nil
}

func (c *Client) dialServers(ctx context.Context, r Request) (*http.Response, error) {
	resp, err := c.tryServers(ctx, r, c.upgrades)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, c.statusError(resp, r)
	}
	return resp, nil
}

// upgraded is a connection after 101: reads and writes go through net/http's stream,
// which holds what was read ahead; deadlines and addresses are the socket's.
type upgraded struct {
	stream io.ReadWriteCloser
	raw    net.Conn // nil if the transport does not expose it
}

var errNoDeadline = errors.New("the transport does not support deadlines")

func (u *upgraded) Read(p []byte) (int, error)  { return u.stream.Read(p) }
func (u *upgraded) Write(p []byte) (int, error) { return u.stream.Write(p) }
func (u *upgraded) Close() error                { return u.stream.Close() }

func (u *upgraded) LocalAddr() net.Addr {
	if u.raw == nil {
		return noAddr{}
	}
	return u.raw.LocalAddr()
}

func (u *upgraded) RemoteAddr() net.Addr {
	if u.raw == nil {
		return noAddr{}
	}
	return u.raw.RemoteAddr()
}

func (u *upgraded) SetDeadline(t time.Time) error     { return u.deadline(t, net.Conn.SetDeadline) }
func (u *upgraded) SetReadDeadline(t time.Time) error { return u.deadline(t, net.Conn.SetReadDeadline) }
func (u *upgraded) SetWriteDeadline(t time.Time) error {
	return u.deadline(t, net.Conn.SetWriteDeadline)
}

func (u *upgraded) deadline(t time.Time, set func(net.Conn, time.Time) error) error {
	if u.raw == nil {
		return errNoDeadline
	}
	return set(u.raw, t)
}

type noAddr struct{}

func (noAddr) Network() string { return "none" }
func (noAddr) String() string  { return "none" }
