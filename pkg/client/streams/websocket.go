package streams

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Opcodes of RFC 6455.
const (
	OpText   = 0x1
	OpBinary = 0x2

	opContinue = 0x0
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xA
)

// Close codes of RFC 6455.
const (
	CloseNormal   = 1000
	CloseProtocol = 1002
	CloseInternal = 1011

	closeNoStatus = 1005
)

// CloseError is the peer's close frame. After a graceful close the code is 1000, 1001 or
// 1005 (none sent).
type CloseError struct {
	Code int
	Text string
}

func (e *CloseError) Error() string { return fmt.Sprintf("websocket closed: %d %s", e.Code, e.Text) }

// WebSocket is a connection after the handshake. One goroutine may read while others
// write.
type WebSocket struct {
	conn   io.ReadWriteCloser
	in     *bufio.Reader
	client bool // client side: written frames are masked, read frames must not be

	write     chan struct{} // a semaphore: holds a value while a message is sent
	buf       []byte
	closeSent bool

	frame frame // the data frame being read
}

// frame is the unread rest of the current frame.
type frame struct {
	final  bool
	left   uint64
	masked bool
	mask   [4]byte
	pos    int
}

// NewWebSocket wraps a connection after the handshake. in may hold bytes that were read
// ahead; nil means none.
func NewWebSocket(conn io.ReadWriteCloser, in *bufio.Reader, client bool) *WebSocket {
	if in == nil {
		in = bufio.NewReader(conn)
	}
	return &WebSocket{conn: conn, in: in, client: client, write: make(chan struct{}, 1), frame: frame{final: true}}
}

// Next blocks until the next message. The body is valid until the next call of Next,
// which skips the unread rest. Next answers pings; it answers the peer's close frame and
// returns it as *CloseError.
func (w *WebSocket) Next() (opcode byte, body io.Reader, err error) {
	if _, err := io.Copy(io.Discard, (*message)(w)); err != nil {
		return 0, nil, err
	}
	opcode, err = w.header()
	if err != nil {
		return 0, nil, err
	}
	if opcode == opContinue {
		return 0, nil, w.fail("a continuation of nothing")
	}
	return opcode, (*message)(w), nil
}

// message reads the body of the current message, across frames.
type message WebSocket

func (m *message) Read(p []byte) (int, error) {
	w := (*WebSocket)(m)
	for w.frame.left == 0 {
		if w.frame.final {
			return 0, io.EOF
		}
		opcode, err := w.header()
		if err != nil {
			return 0, cut(err)
		}
		if opcode != opContinue {
			return 0, w.fail("a message inside a message")
		}
	}
	if uint64(len(p)) > w.frame.left {
		p = p[:w.frame.left]
	}
	n, err := w.in.Read(p)
	w.frame.unmask(p[:n])
	w.frame.left -= uint64(n)
	return n, cut(err)
}

func (f *frame) unmask(p []byte) {
	if !f.masked {
		return
	}
	for i := range p {
		p[i] ^= f.mask[f.pos&3]
		f.pos++
	}
}

// header reads the next data frame's header and handles control frames before it.
func (w *WebSocket) header() (opcode byte, err error) {
	for {
		f, opcode, err := w.readHeader()
		if err != nil {
			return 0, err
		}
		if opcode < opClose {
			w.frame = f
			return opcode, nil
		}
		if err := w.control(f, opcode); err != nil {
			return 0, err
		}
	}
}

func (w *WebSocket) readHeader() (f frame, opcode byte, err error) {
	var b [8]byte
	if _, err := io.ReadFull(w.in, b[:2]); err != nil {
		return f, 0, err
	}
	f.final, opcode, f.masked = b[0]&0x80 != 0, b[0]&0x0f, b[1]&0x80 != 0
	f.left = uint64(b[1] & 0x7f)
	switch {
	case b[0]&0x70 != 0:
		return f, 0, w.fail("reserved bits are set")
	case opcode > opPong || opcode > OpBinary && opcode < opClose:
		return f, 0, w.fail("an unknown opcode")
	case opcode >= opClose && (!f.final || f.left > 125):
		return f, 0, w.fail("a control frame in pieces")
	case f.masked == w.client:
		return f, 0, w.fail("masked by the wrong side")
	}
	switch f.left {
	case 126:
		_, err = io.ReadFull(w.in, b[:2])
		f.left = uint64(binary.BigEndian.Uint16(b[:2]))
	case 127:
		_, err = io.ReadFull(w.in, b[:8])
		f.left = binary.BigEndian.Uint64(b[:8])
		if f.left>>63 != 0 {
			return f, 0, w.fail("a frame of impossible length")
		}
	}
	if err == nil && f.masked {
		_, err = io.ReadFull(w.in, f.mask[:])
	}
	return f, opcode, cut(err)
}

func (w *WebSocket) control(f frame, opcode byte) error {
	payload := make([]byte, f.left)
	if _, err := io.ReadFull(w.in, payload); err != nil {
		return cut(err)
	}
	f.unmask(payload)
	switch opcode {
	case opPing:
		return w.send(opPong, payload)
	case opClose:
		closed := &CloseError{Code: closeNoStatus}
		if len(payload) >= 2 {
			closed.Code, closed.Text = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
		}
		w.Close(CloseNormal, "")
		return closed
	}
	return nil
}

// cut turns io.EOF in the middle of a frame into io.ErrUnexpectedEOF.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fail closes the WebSocket because the peer violated the protocol.
func (w *WebSocket) fail(what string) error {
	w.Close(CloseProtocol, what)
	return fmt.Errorf("websocket protocol: %s", what)
}

// Write sends one message, the concatenation of parts. It is safe for concurrent use.
func (w *WebSocket) Write(opcode byte, parts ...[]byte) error { return w.send(opcode, parts...) }

// Pong sends an unsolicited pong: a heartbeat that needs no answer. It keeps the
// connection alive even if the peer's pings are not read because its data waits for a
// slow receiver.
func (w *WebSocket) Pong() error { return w.send(opPong) }

// Ping sends a ping. Next ignores the answer.
func (w *WebSocket) Ping() error { return w.send(opPing) }

// Close sends a close frame, once; later writes fail. The connection stays open for the
// peer's answer: see Hangup.
func (w *WebSocket) Close(code int, text string) error {
	payload := binary.BigEndian.AppendUint16(nil, uint16(code))
	return w.send(opClose, append(payload, text[:min(len(text), 123)]...))
}

// Hangup closes the underlying connection.
func (w *WebSocket) Hangup() error { return w.conn.Close() }

var errClosed = errors.New("websocket: a close frame was sent")

func (w *WebSocket) send(opcode byte, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	w.write <- struct{}{}
	defer func() { <-w.write }()
	if w.closeSent {
		return errClosed
	}
	w.closeSent = opcode == opClose
	w.buf = appendHeader(w.buf[:0], opcode, n, w.client)
	start := len(w.buf)
	for _, p := range parts {
		w.buf = append(w.buf, p...)
	}
	if w.client {
		f := frame{masked: true, mask: [4]byte(w.buf[start-4 : start])}
		f.unmask(w.buf[start:])
	}
	_, err := w.conn.Write(w.buf)
	if cap(w.buf) > maxKept {
		w.buf = nil
	}
	return err
}

const maxKept = 64 << 10 // a write buffer larger than this is not kept

func appendHeader(b []byte, opcode byte, n int, mask bool) []byte {
	var masked byte
	if mask {
		masked = 0x80
	}
	b = append(b, 0x80|opcode)
	switch {
	case n < 126:
		b = append(b, masked|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), uint64(n))
	}
	if mask {
		var key [4]byte
		rand.Read(key[:]) // never fails
		b = append(b, key[:]...)
	}
	return b
}
