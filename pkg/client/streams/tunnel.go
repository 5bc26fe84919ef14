package streams

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Join copies between two connections both ways until they are done, and
// closes them. When one side has said all, the other is told so, and has a few
// seconds to say the rest. The end of ctx cuts both.
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

// pour copies until src ends, then tells dst. When dst does not take more, the
// rest is read and dropped: a connection that is closed with unread data may
// lose what it has written last.
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

// watched tells an error of the writer from one of the reader.
type watched struct {
	io.Writer
	failed bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.failed = w.failed || err != nil
	return n, err
}

// Conn makes a net.Conn of a stream that a server handed over, for libraries
// that want one. It knows no deadlines.
func Conn(s io.ReadWriteCloser) net.Conn {
	if c, ok := s.(net.Conn); ok {
		return c
	}
	return streamConn{s}
}

// Once makes closing a connection twice no error: libraries hold on to one
// whose second closing fails.
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

// Bytes is a WebSocket taken as a plain connection: each Write a binary
// message, reads over message boundaries. A peer's orderly close is io.EOF.
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

// CloseWrite says goodbye; the peer may still send.
func (c *bytesConn) CloseWrite() error { return c.ws.Close(CloseNormal, "") }

func (c *bytesConn) Close() error { return c.ws.Hangup() }
