package streams

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Options are the streams of an exec or attach.
type Options struct {
	Stdin, Stdout, Stderr, TTY bool
}

// heartbeat is the period of unsolicited pongs.
const heartbeat = 10 * time.Second

// RemoteCommand proxies an exec or attach to the target. SPDY is passed through
// unchanged; WebSocket channels are translated to SPDY streams, which every container
// runtime supports.
func (t Target) RemoteCommand(w http.ResponseWriter, r *http.Request, opts Options) error {
	if !IsWebSocket(r) {
		return t.Upgrade(w, r)
	}
	protocol, err := Negotiate(r, []string{ProtocolV5, ProtocolV4, ProtocolV4Base64, ProtocolV1, ProtocolV1Base64, ""})
	if err != nil {
		return &RequestError{err}
	}
	backend, ok, err := t.openSPDY(r.Context(), w, spdyRemoteCommand)
	if !ok {
		return err
	}
	remote, err := OpenRemote(Conn(backend), opts)
	if err != nil {
		return err
	}
	defer remote.Close()
	ws, err := Accept(w, r, protocol)
	if err != nil {
		return &RequestError{err}
	}
	stop := ws.Heartbeat(heartbeat, ws.Pong)
	defer stop()
	x := &exchange{remote: remote, channels: NewChannels(ws, protocol, Stdin, Resize), protocol: protocol}
	x.run(r.Context())
	return nil
}

// Remote are the SPDY streams of one exec or attach, from the client's side. Streams
// that were not requested are nil.
type Remote struct {
	Errors, Stdin, Stdout, Stderr, Resize httpstream.Stream

	raw  net.Conn
	conn httpstream.Connection
}

// OpenRemote opens the streams, in the order that servers expect, over a connection that
// has switched to SPDY. It closes the connection on an error.
func OpenRemote(raw net.Conn, opts Options) (*Remote, error) {
	raw = Once(raw)
	conn, err := spdy.NewClientConnection(raw)
	if err != nil {
		return nil, err // the library has closed it
	}
	r := &Remote{raw: raw, conn: conn}
	for _, s := range []struct {
		want bool
		kind string
		to   *httpstream.Stream
	}{
		{true, corev1.StreamTypeError, &r.Errors},
		{opts.Stdin, corev1.StreamTypeStdin, &r.Stdin},
		{opts.Stdout, corev1.StreamTypeStdout, &r.Stdout},
		{opts.Stderr && !opts.TTY, corev1.StreamTypeStderr, &r.Stderr},
		{opts.TTY, corev1.StreamTypeResize, &r.Resize},
	} {
		if !s.want {
			continue
		}
		header := http.Header{}
		header.Set(corev1.StreamType, s.kind)
		if *s.to, err = conn.CreateStream(header); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close ends all streams at once. It closes the raw connection first: a SPDY goodbye
// would block behind a write to a command that does not read its input.
func (r *Remote) Close() {
	r.raw.Close()
	r.conn.Close()
}

// exchange copies between a WebSocket's channels and SPDY streams.
type exchange struct {
	remote   *Remote
	channels *Channels
	protocol string
}

// run blocks until the command has ended and all of its output is delivered, or either
// side is gone.
func (x *exchange) run(ctx context.Context) {
	var input, output sync.WaitGroup
	defer input.Wait()
	input.Go(func() {
		x.channels.Run()
		x.remote.Close() // the client is gone: end the command's connection
	})
	stop := context.AfterFunc(ctx, func() { x.remote.Close() })
	defer stop()
	x.copyIn(&input, Stdin, x.remote.Stdin)
	x.copyIn(&input, Resize, x.remote.Resize)

	// Upstream opens with an empty message, which shows the client that the server is ready.
	x.channels.Writer(x.firstOutput()).Write(nil)
	x.copyOut(&output, Stdout, x.remote.Stdout)
	x.copyOut(&output, Stderr, x.remote.Stderr)
	status, err := io.ReadAll(io.LimitReader(x.remote.Errors, maxAnswer))
	output.Wait()
	x.remote.Close()
	if len(status) == 0 {
		status = lost(err)
	}
	if text := x.errorText(status); len(text) > 0 {
		x.channels.Writer(ErrorChannel).Write(text)
	}
	x.channels.Close(CloseNormal, "")
}

func (x *exchange) firstOutput() byte {
	switch {
	case x.remote.Stdout != nil:
		return Stdout
	case x.remote.Stderr != nil:
		return Stderr
	}
	return ErrorChannel
}

func (x *exchange) copyIn(wg *sync.WaitGroup, ch byte, to httpstream.Stream) {
	from := x.channels.Reader(ch)
	if to == nil {
		from.Close()
		return
	}
	wg.Go(func() {
		io.Copy(to, from)
		from.Close()
		to.Close() // half-closes: the command sees EOF
	})
}

func (x *exchange) copyOut(wg *sync.WaitGroup, ch byte, from httpstream.Stream) {
	if from == nil {
		return
	}
	wg.Go(func() {
		if _, err := io.Copy(x.channels.Writer(ch), from); err != nil {
			x.remote.Close() // the client reads no more
		}
	})
}

// lost returns a Status for a command whose exit status was lost.
func lost(err error) []byte {
	if err == nil {
		err = errors.New("the connection to the node was lost")
	}
	text, _ := json.Marshal(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: "error: " + err.Error(), Code: http.StatusInternalServerError}) // a struct of strings
	return text
}

// errorText encodes a status for the client's protocol: from v4 on unchanged, before
// that as the message of a failure.
func (x *exchange) errorText(status []byte) []byte {
	if x.protocol == ProtocolV5 || x.protocol == ProtocolV4 || x.protocol == ProtocolV4Base64 {
		return status
	}
	var s metav1.Status
	if err := json.Unmarshal(status, &s); err != nil {
		return status
	}
	if s.Status == metav1.StatusSuccess {
		return nil
	}
	return []byte(s.Message)
}
