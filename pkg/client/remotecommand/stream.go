package remotecommand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/streams"
)

// Size is the size of a terminal, in characters.
type Size struct{ Width, Height uint16 }

// Streams are the local ends of a session. A nil stream is not connected. With TTY, the
// command's stderr is written to Out.
type Streams struct {
	// In is read until EOF, which is passed to the command. A Read in progress when the
	// command ends is not interrupted: its goroutine stays until the Read returns.
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
	Resize   <-chan Size // only with TTY
}

// ExitError is returned for a command that ran and exited with a code other than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// Stream connects to an exec or attach subresource and copies until the command has
// ended. path is the path of the subresource; query names the container and the
// command; Stream adds the parameters of the streams in s. It uses WebSocket, and SPDY
// if the server refuses that. It returns *ExitError if the command failed.
func Stream(ctx context.Context, c *client.Client, path string, query url.Values, s Streams) error {
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	if s.TTY {
		s.Err = nil
	} else {
		s.Resize = nil
	}
	for name, on := range map[string]bool{"stdin": s.In != nil, "stdout": s.Out != nil, "stderr": s.Err != nil, "tty": s.TTY} {
		if on {
			query.Set(name, "true")
		}
	}
	header := streams.WebSocketHeader(streams.ProtocolV5)
	conn, protocol, err := dialWebSocket(ctx, c, path, query, header)
	if err == nil {
		return s.overWebSocket(ctx, conn, protocol)
	}
	if !refused(err) {
		return err
	}
	raw, err := dialSPDY(ctx, c, path, query, streams.ProtocolV4)
	if err != nil {
		return err
	}
	return s.overSPDY(ctx, raw)
}

// dialWebSocket opens a WebSocket and returns its subprotocol.
func dialWebSocket(ctx context.Context, c *client.Client, path string, query url.Values, header http.Header) (net.Conn, string, error) {
	conn, resp, err := c.Dial(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query, Header: header})
	if err != nil {
		return nil, "", err
	}
	if conn == nil {
		resp.Body.Close()
		return nil, "", errNoSwitch
	}
	protocol, err := streams.CheckAccepted(header, resp.Header)
	if err != nil {
		conn.Close()
		return nil, "", err
	}
	return conn, protocol, nil
}

func dialSPDY(ctx context.Context, c *client.Client, path string, query url.Values, protocol string) (net.Conn, error) {
	conn, resp, err := c.Dial(ctx, client.Request{Method: http.MethodPost, Path: path, Query: query, Header: streams.SPDYHeader(protocol)})
	if err != nil {
		return nil, err
	}
	if conn == nil {
		resp.Body.Close()
		return nil, errNoSwitch
	}
	return conn, nil
}

var errNoSwitch = errors.New("unable to upgrade connection: the server answered without switching protocols")

// refused reports whether an error may mean that the server does not support WebSocket:
// SPDY may then succeed.
func refused(err error) bool {
	if errors.Is(err, errNoSwitch) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return false
	}
	return true
}

const (
	pingPeriod = 5 * time.Second
	silence    = time.Minute // a server that sends nothing for this long is considered gone
)

// impatient is a connection on which a Read fails after a minute without data.
type impatient struct{ net.Conn }

func (c impatient) Read(p []byte) (int, error) {
	c.SetReadDeadline(time.Now().Add(silence)) // without deadlines in the transport, silence is not detected
	return c.Conn.Read(p)
}

func (s *Streams) overWebSocket(ctx context.Context, conn net.Conn, protocol string) error {
	ws := streams.NewWebSocket(impatient{conn}, nil, true)
	defer ws.Heartbeat(pingPeriod, ws.Ping)()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	ch := streams.NewChannels(ws, protocol, streams.Stdout, streams.Stderr, streams.ErrorChannel)

	ended := make(chan struct{})
	defer close(ended)
	if s.In != nil {
		go func() {
			io.Copy(pieces{ch.Writer(streams.Stdin)}, s.In)
			ch.CloseWrite(streams.Stdin)
		}()
	}
	go sendSizes(ch.Writer(streams.Resize), s.Resize, ended)

	out := newCopies(func() { conn.Close() })
	out.start(s.Out, ch.Reader(streams.Stdout))
	out.start(s.Err, ch.Reader(streams.Stderr))
	var status []byte
	out.wg.Go(func() { status, _ = io.ReadAll(io.LimitReader(ch.Reader(streams.ErrorChannel), maxStatus)) })
	lost := ch.Run() // Run returns when the server has closed its side
	out.wg.Wait()
	conn.Close()
	return outcome(ctx, status, out.err(), lost)
}

func (s *Streams) overSPDY(ctx context.Context, raw net.Conn) error {
	remote, err := streams.OpenRemote(raw, streams.Options{Stdin: s.In != nil, Stdout: s.Out != nil, Stderr: s.Err != nil, TTY: s.TTY})
	if err != nil {
		return err
	}
	defer remote.Close()
	stop := context.AfterFunc(ctx, remote.Close)
	defer stop()

	ended := make(chan struct{})
	defer close(ended)
	if s.In != nil {
		go func() {
			io.Copy(pieces{remote.Stdin}, s.In)
			remote.Stdin.Close()
		}()
	}
	if remote.Resize != nil {
		go sendSizes(remote.Resize, s.Resize, ended)
	}
	out := newCopies(remote.Close)
	out.start(s.Out, remote.Stdout)
	out.start(s.Err, remote.Stderr)
	status, lost := io.ReadAll(io.LimitReader(remote.Errors, maxStatus))
	out.wg.Wait()
	return outcome(ctx, status, out.err(), lost)
}

const maxStatus = 64 << 10

// copies are the goroutines that copy the command's output. When a write fails, abort
// ends the connection.
type copies struct {
	wg    sync.WaitGroup
	abort func()

	mu    sync.Mutex
	first error
}

func newCopies(abort func()) *copies { return &copies{abort: abort} }

func (c *copies) start(to io.Writer, from io.Reader) {
	if to == nil {
		if r, ok := from.(io.Closer); ok {
			r.Close()
		}
		return
	}
	c.wg.Go(func() {
		if _, err := io.Copy(localOnly{to, c}, from); err == nil || c.err() == nil {
			return
		}
		if r, ok := from.(io.Closer); ok {
			r.Close() // otherwise the connection blocks on the rest of a message
		}
		c.abort()
	})
}

func (c *copies) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// localOnly records the errors of local writes.
type localOnly struct {
	io.Writer
	c *copies
}

func (w localOnly) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.c.mu.Lock()
		w.c.first = errors.Join(w.c.first, err)
		w.c.mu.Unlock()
	}
	return n, err
}

// pieces splits writes into messages of a size that every server accepts.
type pieces struct{ io.Writer }

const pieceSize = 32 << 10

func (w pieces) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var m int
		m, err = w.Writer.Write(p[:min(len(p), pieceSize)])
		n += m
		p = p[m:]
	}
	return n, err
}

// sendSizes writes one JSON document for each size.
func sendSizes(to io.Writer, sizes <-chan Size, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			text, _ := json.Marshal(size) // two numbers
			if _, err := to.Write(append(text, '\n')); err != nil {
				return
			}
		}
	}
}

// outcome returns the result of the command: the status that the server sent, or the
// reason why there is none.
func outcome(ctx context.Context, status []byte, local, lost error) error {
	var closed *streams.CloseError
	switch {
	case len(status) > 0:
		return decode(status)
	case ctx.Err() != nil:
		return ctx.Err()
	case local != nil:
		return local
	case errors.As(lost, &closed) && closed.Code != streams.CloseNormal:
		return fmt.Errorf("the server ended the stream: %s (%d)", closed.Text, closed.Code)
	case lost != nil && closed == nil:
		return fmt.Errorf("the connection to the server was lost: %w", lost)
	}
	return errors.New("the stream ended without the command's status")
}

// exitReason and exitCause identify the status of a command that ran and failed.
const (
	exitReason = metav1.StatusReason("NonZeroExitCode")
	exitCause  = metav1.CauseType("ExitCode")
)

func decode(text []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("the server's status is not one: %q", text)
	}
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if status.Reason == exitReason && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); err == nil && cause.Type == exitCause {
				return &ExitError{Code: code}
			}
		}
	}
	return errors.New(status.Message)
}
