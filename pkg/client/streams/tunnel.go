package streams

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Join copies between two connections in both directions until both are done, and closes
// them. When one direction ends, Join half-closes it and gives the other one grace to
// finish. When ctx ends, Join closes both.
func Join(ctx context.Context, a, b io.ReadWriteCloser) {
	var once sync.Once
	closeBoth := func() {
		once.Do(func() {
			a.Close()
			b.Close()
		})
	}
	defer closeBoth()
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()

	done := make(chan struct{}, 2)
	go func() { pour(b, a); done <- struct{}{} }()
	go func() { pour(a, b); done <- struct{}{} }()
	<-done
	t := time.AfterFunc(grace, closeBoth)
	defer t.Stop()
	<-done
}

// pour copies until src ends, then half-closes dst. If writing to dst fails, it reads and
// drops the rest of src: closing a connection with unread data may discard what the peer
// was sent last.
func pour(dst io.WriteCloser, src io.Reader) {
	w := &watched{Writer: dst}
	if _, err := io.Copy(w, src); err != nil && w.failed {
		io.Copy(io.Discard, src)
		return
	}
	half, ok := dst.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		dst.Close()
	}
}

// watched records whether a write failed, to tell write errors from read errors.
type watched struct {
	io.Writer
	failed bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.failed = w.failed || err != nil
	return n, err
}

// Conn adapts a stream to net.Conn, for libraries that require one. Unless s is a
// net.Conn already, deadlines are not supported.
func Conn(s io.ReadWriteCloser) net.Conn {
	if c, ok := s.(net.Conn); ok {
		return c
	}
	return streamConn{s}
}

// Once makes a second Close return the result of the first: some libraries do not
// release a connection whose second Close fails.
func Once(c net.Conn) net.Conn {
	o := &onceConn{Conn: c}
	o.close = sync.OnceValue(c.Close)
	return o
}

type onceConn struct {
	net.Conn
	close func() error
}

func (o *onceConn) Close() error {
	o.close()
	return nil
}

type streamConn struct{ io.ReadWriteCloser }

func (streamConn) LocalAddr() net.Addr              { return streamAddr{} }
func (streamConn) RemoteAddr() net.Addr             { return streamAddr{} }
func (streamConn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (streamConn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (streamConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

type streamAddr struct{}

func (streamAddr) Network() string { return "stream" }
func (streamAddr) String() string  { return "stream" }

// Bytes returns the WebSocket as a byte stream: each Write is a binary message, reads
// cross message boundaries. Read returns io.EOF when the peer closes gracefully.
func (w *WebSocket) Bytes() io.ReadWriteCloser { return &bytesConn{ws: w} }

type bytesConn struct {
	ws   *WebSocket
	body io.Reader
}

func (c *bytesConn) Read(p []byte) (int, error) {
	for {
		if c.body == nil {
			_, body, err := c.ws.Next()
			var closed *CloseError
			if errors.As(err, &closed) {
				return 0, io.EOF
			}
			if err != nil {
				return 0, err
			}
			c.body = body
		}
		n, err := c.body.Read(p)
		if err == io.EOF {
			c.body, err = nil, nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

func (c *bytesConn) Write(p []byte) (int, error) {
	if err := c.ws.Write(OpBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite sends a close frame; the peer may still send.
func (c *bytesConn) CloseWrite() error { return c.ws.Close(CloseNormal, "") }

func (c *bytesConn) Close() error { return c.ws.Hangup() }
