package dns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Server is a name server.
type Server struct {
	cfg     Config
	views   *views
	forward *forwarder
	metrics *metrics
}

// New returns a Server; Run starts it. It returns an error if cfg is invalid.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, views: newViews(cfg), metrics: newMetrics(cfg.Registry)}
	s.forward = newForwarder(cfg, s.metrics)
	watchCache(cfg.Registry, s.forward.cache)
	return s, nil
}

// Ready returns nil when all objects have been listed, and an error before that.
func (s *Server) Ready() error {
	if !s.views.synced() {
		return errors.New("waiting for the first list of Services and endpoints")
	}
	return nil
}

// The idle timeout of TCP connections and the timeout of a shutdown.
const (
	idleTimeout     = 8 * time.Second
	shutdownTimeout = 3 * time.Second
)

// Run serves until ctx ends or serving fails. It closes the connections of the config.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	h := s.handler(ctx)
	servers := []*dns.Server{
		{PacketConn: s.cfg.PacketConn, UDPSize: udpSize},
		{Listener: netutil.LimitListener(s.cfg.Listener, s.cfg.MaxConns)},
	}
	for _, server := range servers {
		server.Handler = h
		server.MsgAcceptFunc = accept
		server.ReadTimeout = idleTimeout
		server.WriteTimeout = idleTimeout
		server.IdleTimeout = func() time.Duration { return idleTimeout }
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		g.Go(func() error {
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("serve DNS: %w", err)
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			select { // a server that has not started cannot be shut down
			case <-started:
			case <-time.After(shutdownTimeout):
			}
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer cancel()
			_ = server.ShutdownContext(end) // it has failed before, or a client is slow
			return nil
		})
	}
	g.Go(func() error { return s.views.run(ctx) })
	g.Go(func() error { return s.forward.watchLoop(ctx) })
	g.Go(func() error { return s.forward.revive(ctx) })
	return g.Wait()
}

func (s *Server) handler(ctx context.Context) *handler {
	return &handler{
		zone: &zone{
			origin: s.cfg.origin(), ttl: uint32(s.cfg.TTL / time.Second), pods: s.cfg.Pods, lookup: s.views,
		},
		forward: s.forward, metrics: s.metrics, synced: s.views.synced, log: s.cfg.Log, ctx: ctx,
	}
}

// accept checks a packet's header: it drops responses silently and rejects invalid
// queries.
func accept(h dns.Header) dns.MsgAcceptAction {
	const response, opcode = 1 << 15, 0xF << 11
	switch {
	case h.Bits&response != 0:
		return dns.MsgIgnore
	case h.Bits&opcode != 0:
		return dns.MsgRejectNotImplemented
	case h.Qdcount != 1 || h.Ancount != 0 || h.Nscount != 0 || h.Arcount > 2:
		return dns.MsgReject
	}
	return dns.MsgAccept
}
