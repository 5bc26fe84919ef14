package remotecommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"podium/pkg/client"
	"podium/pkg/client/streams"
)

// Port is a local port that is forwarded to a port of the pod.
type Port struct {
	Address string // to listen on; "" or "localhost": 127.0.0.1, and ::1 if available
	Local   uint16 // 0: any free one
	Remote  uint16
}

func (p Port) String() string {
	return fmt.Sprintf("%s -> %d", net.JoinHostPort(p.Address, strconv.Itoa(int(p.Local))), p.Remote)
}

// ErrLostPod is returned by Forward when the connection to the pod breaks.
var ErrLostPod = errors.New("lost connection to pod")

// protocolPortForward is port-forward's SPDY protocol.
const protocolPortForward = "portforward.k8s.io"

// Forward listens on the ports and forwards connections to the pod's ports. It blocks
// until ctx ends or the connection to the pod breaks. ready, if not nil, receives one
// message with the actual listeners, one for each address.
func Forward(ctx context.Context, c *client.Client, namespace, pod string, ports []Port, ready chan<- []Port, log *slog.Logger) error {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(pod) + "/portforward"
	raw, err := dialForward(ctx, c, path)
	if err != nil {
		return err
	}
	raw = streams.Once(raw)
	conn, err := spdy.NewClientConnection(raw)
	if err != nil {
		return err // the library has closed it
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &forwarder{conn: conn, log: log}
	defer f.wg.Wait()
	defer func() { raw.Close(); conn.Close() }()
	defer cancel()

	listeners, err := listenAll(ctx, ports)
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err != nil {
		return err
	}
	open := make([]Port, len(listeners))
	for i, l := range listeners {
		open[i] = l.port
		f.wg.Go(func() { f.accept(ctx, l) })
	}
	if ready != nil {
		ready <- open
	}
	select {
	case <-ctx.Done():
		return nil
	case <-conn.CloseChan():
		return ErrLostPod
	}
}

// dialForward opens a port-forward to the pod, over a WebSocket if the server can.
func dialForward(ctx context.Context, c *client.Client, path string) (net.Conn, error) {
	header := streams.WebSocketHeader(streams.ProtocolTunnel)
	conn, _, err := dialWebSocket(ctx, c, path, nil, header)
	if err == nil {
		ws := streams.NewWebSocket(impatient{conn}, nil, true)
		tunnel := &pinged{Conn: streams.Conn(ws.Bytes())}
		tunnel.stop = ws.Heartbeat(pingPeriod, ws.Ping)
		return tunnel, nil
	}
	if !refused(err) {
		return nil, err
	}
	return dialSPDY(ctx, c, path, nil, protocolPortForward)
}

// pinged stops the pings when the tunnel is closed.
type pinged struct {
	net.Conn
	stop func()
}

func (p *pinged) Close() error {
	err := p.Conn.Close()
	p.stop()
	return err
}

type listener struct {
	net.Listener
	port Port
}

func listenAll(ctx context.Context, ports []Port) ([]listener, error) {
	var all []listener
	var lc net.ListenConfig
	listen := func(p Port) error {
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(p.Address, strconv.Itoa(int(p.Local))))
		if err != nil {
			return fmt.Errorf("unable to listen on port %d: %w", p.Local, err)
		}
		p.Local = uint16(l.Addr().(*net.TCPAddr).Port)
		all = append(all, listener{l, p})
		return nil
	}
	for _, p := range ports {
		if p.Address != "" && p.Address != "localhost" {
			if err := listen(p); err != nil {
				return all, err
			}
			continue
		}
		p.Address = "127.0.0.1"
		if err := listen(p); err != nil {
			return all, err
		}
		// ::1 is optional: many machines do not have it.
		p.Address, p.Local = "::1", all[len(all)-1].port.Local
		if err := listen(p); err != nil && ctx.Err() != nil {
			return all, err
		}
	}
	return all, nil
}

// forwarder forwards local connections over one connection to the pod.
type forwarder struct {
	conn httpstream.Connection
	log  *slog.Logger
	id   atomic.Int64
	wg   sync.WaitGroup
}

func (f *forwarder) accept(ctx context.Context, l listener) {
	for {
		local, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				f.log.Error("accept", "port", l.port.Local, "err", err)
			}
			return
		}
		f.log.Info("Handling connection", "port", l.port.Local)
		f.wg.Go(func() {
			if err := f.serve(ctx, local, l.port); err != nil && ctx.Err() == nil {
				f.log.Error("forward", "port", l.port.Local, "err", err)
			}
		})
	}
}

// serve forwards one local connection over a pair of streams; the error stream carries
// the error text of the kubelet.
func (f *forwarder) serve(ctx context.Context, local net.Conn, port Port) error {
	defer local.Close()
	stop := context.AfterFunc(ctx, func() { local.Close() })
	defer stop()
	header := http.Header{}
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	header.Set(corev1.PortHeader, strconv.Itoa(int(port.Remote)))
	header.Set(corev1.PortForwardRequestIDHeader, strconv.FormatInt(f.id.Add(1), 10))
	failure, err := f.conn.CreateStream(header)
	if err != nil {
		return fmt.Errorf("open the error stream for port %d: %w", port.Remote, err)
	}
	defer f.drop(failure)
	failure.Close() // the error stream is only read

	header = header.Clone()
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := f.conn.CreateStream(header)
	if err != nil {
		return fmt.Errorf("open the data stream for port %d: %w", port.Remote, err)
	}
	defer f.drop(data)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.Copy(data, local)
		data.Close()
	}()
	io.Copy(local, data) // ends when the pod has closed its side, which has no timeout
	text, err := io.ReadAll(io.LimitReader(failure, maxStatus))
	if len(text) > 0 {
		return errors.New(string(text))
	}
	f.partWith(local, sent)
	return err
}

// drainTimeout is how long a local program may continue to send to a port that has closed
// its connection.
const drainTimeout = 3 * time.Second

// partWith half-closes the local connection and waits for the local program to finish.
func (f *forwarder) partWith(local net.Conn, sent <-chan struct{}) {
	if half, ok := local.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	t := time.NewTimer(drainTimeout)
	defer t.Stop()
	select {
	case <-sent:
	case <-t.C:
	case <-f.conn.CloseChan():
	}
}

func (f *forwarder) drop(s httpstream.Stream) {
	s.Reset()
	f.conn.RemoveStreams(s)
}
