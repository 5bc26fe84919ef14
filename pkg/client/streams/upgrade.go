package streams

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// SPDY protocols that the proxy speaks to its target.
const (
	spdyRemoteCommand = "v4.channel.k8s.io"
	spdyPortForward   = "portforward.k8s.io"

	// ProtocolTunnel carries port-forward's SPDY as the bytes of a WebSocket.
	ProtocolTunnel = "SPDY/3.1+portforward.k8s.io"
)

// Target is the next hop of a stream: a kubelet or a container runtime.
type Target struct {
	URL       *url.URL
	Transport http.RoundTripper // HTTP/1.1
}

// Upgrade proxies a request that switches protocols to the target, and then the
// connection, unchanged. If the target does not switch, its response goes to the client.
// If Upgrade returns an error, nothing has been written.
func (t Target) Upgrade(w http.ResponseWriter, r *http.Request) error {
	header := r.Header.Clone()
	header.Del("Authorization")
	backend, ok, err := t.open(r.Context(), w, r.Method, header)
	if !ok {
		return err
	}
	conn, in, err := switchTo(w, backend.header)
	if err != nil {
		backend.Close()
		return err
	}
	Join(r.Context(), backend, buffered{conn, in})
	return nil
}

// RequestError is the error of an invalid request: answer 400.
type RequestError struct{ error }

// buffered is a connection with data that was read ahead.
type buffered struct {
	io.ReadWriteCloser
	in io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

func (b buffered) CloseWrite() error {
	if half, ok := b.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Close()
}

// upstream is a connection to a target that has switched protocols.
type upstream struct {
	io.ReadWriteCloser
	header http.Header
}

func (u upstream) CloseWrite() error {
	if half, ok := u.ReadWriteCloser.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		return nil
	}
	return u.Close()
}

// open sends an upgrade request to the target. If the target did not switch, ok is false
// and either its response has been written to w or err is not nil.
func (t Target) open(ctx context.Context, w http.ResponseWriter, method string, header http.Header) (backend upstream, ok bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, t.URL.String(), nil)
	if err != nil {
		return upstream{}, false, err
	}
	req.Header = header
	resp, err := t.Transport.RoundTrip(req)
	if err != nil {
		return upstream{}, false, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		answer(w, resp)
		return upstream{}, false, nil
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		resp.Body.Close()
		return upstream{}, false, fmt.Errorf("the transport to %s cannot switch protocols", t.URL.Host)
	}
	return upstream{stream, resp.Header}, true, nil
}

const maxAnswer = 64 << 10

// answer copies the target's response to the client.
func answer(w http.ResponseWriter, resp *http.Response) {
	for _, name := range []string{"Content-Type", "X-Accepted-Stream-Protocol-Versions"} {
		if v := resp.Header.Values(name); len(v) > 0 {
			w.Header()[name] = v
		}
	}
	code := resp.StatusCode
	if code < http.StatusBadRequest {
		code = http.StatusBadGateway // a success without a switch is an error of the target
	}
	w.WriteHeader(code)
	io.Copy(w, io.LimitReader(resp.Body, maxAnswer))
}

// openSPDY opens a SPDY connection to the target.
func (t Target) openSPDY(ctx context.Context, w http.ResponseWriter, protocol string) (backend upstream, ok bool, err error) {
	return t.open(ctx, w, http.MethodPost, SPDYHeader(protocol))
}

// SPDYHeader returns the headers of a client's SPDY request.
func SPDYHeader(protocols ...string) http.Header {
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {spdy.HeaderSpdy31}}
	for _, p := range protocols {
		h.Add(httpstream.HeaderProtocolVersion, p)
	}
	return h
}

// PortForward proxies a port-forward to the target. SPDY is passed through unchanged;
// SPDY tunnelled in a WebSocket is unwrapped.
func (t Target) PortForward(w http.ResponseWriter, r *http.Request) error {
	if !WantsProtocol(r, ProtocolTunnel) {
		return t.Upgrade(w, r)
	}
	backend, ok, err := t.openSPDY(r.Context(), w, spdyPortForward)
	if !ok {
		return err
	}
	ws, err := Accept(w, r, ProtocolTunnel)
	if err != nil {
		backend.Close()
		return &RequestError{err}
	}
	stop := ws.Heartbeat(heartbeat, ws.Pong)
	defer stop()
	Join(r.Context(), backend, ws.Bytes())
	return nil
}

// IsSPDY reports whether a request asks for SPDY streams.
func IsSPDY(r *http.Request) bool {
	return IsUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), spdy.HeaderSpdy31)
}
