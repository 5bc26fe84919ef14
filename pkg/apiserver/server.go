package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/plugins"
	"podium/pkg/apiserver/aggregation"
	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/crd"
	"podium/pkg/apiserver/crd/conversion"
	"podium/pkg/apiserver/discovery"
	"podium/pkg/apiserver/endpoints"
	"podium/pkg/apiserver/flowcontrol"
	"podium/pkg/apiserver/openapi"
	"podium/pkg/apiserver/registry"
	"podium/pkg/daemon"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// Config configures a Server. Fields not marked as optional must be set.
type Config struct {
	Scheme *scheme.Scheme
	Store  storage.Store
	Kinds  []*registry.Kind
	Log    *slog.Logger

	Encryption Encryption // the encryption at rest of Store

	Listener net.Listener         // optional: without it only Handler serves
	TLS      *tls.Config          // optional: plain HTTP without it
	Registry *prometheus.Registry // optional
	OpenAPI  *openapi.Documents   // optional: without it there is no /openapi, no server-side apply and there are no managed fields

	// Authentication, authorization and admission. Authenticator is optional
	// and defaults to the authenticators of Authn; Authorizer is optional and
	// defaults to Access.
	Authenticator authn.Authenticator
	Authn         Authentication
	Authorizer    authz.Authorizer
	Access        *Access // optional: default NewAccess with Node and RBAC; its roles are synced even if Authorizer is set
	Admission     plugins.Config

	// Aggregation configures the proxy to aggregated API servers. The server itself sets
	// all but Certificate, Dial and ToEndpoints.
	Aggregation aggregation.Config

	Audit     *audit.Auditor // optional
	Profiling bool           // serve /debug/pprof

	// Snapshot starts a copy of the store, followed by its SHA-256. The caller
	// closes the reader. Optional: without it /snapshot is not served.
	Snapshot func(context.Context) (io.ReadCloser, error)

	// Repair repairs objects that a crash between two writes has left
	// inconsistent. It is called periodically while the server runs. Optional.
	Repair func(context.Context, registry.Backend) error

	Now    func() time.Time // optional: time.Now
	Random io.Reader        // optional: crypto/rand; safe for concurrent use

	MaxReads, MaxWrites int           // requests in flight, together the seats of all priority levels; 0: no limit
	NoPriorities        bool          // limit reads and writes apart, without priority levels and queues
	MaxLongRunning      int           // watches and streams of one ordinary user; 0: no limit
	MaxWriteRate        int64         // bytes a second that one ordinary user may write to the store; 0: no limit
	Memory              int64         // bytes that decoding bodies may take at the same time; 0: no limit
	RequestTimeout      time.Duration // timeout for non-streaming requests; 0: 60 s
	CompactEvery        time.Duration // interval between compactions; 0: 5 minutes, negative: never
	EventTTL            time.Duration // how long an Event is kept after its last occurrence; 0: forever
	ShutdownDelay       time.Duration // from failing readiness to closing the listener

	// Advertise is the address at which other machines reach this server, an
	// endpoint of the Service default/kubernetes. Without it that Service is
	// not created.
	Advertise   netip.AddrPort
	ServiceCIDR netip.Prefix // Services' range; its first address is that of default/kubernetes
	Identity    string       // name of this server in its Lease; default: the host name
}

// Encryption is the encryption at rest of the store's values.
type Encryption interface {
	Run(ctx context.Context) error // keeps the keys current; blocks until ctx ends
	Healthy() error
}

const (
	defaultRequestTimeout = 60 * time.Second
	compactKey            = "/registry/podium/compactor"
	drainTimeout          = 30 * time.Second // time for requests in flight at shutdown
	leaveTimeout          = 2 * time.Second
)

// Server is the API server. Use New to create one. Its exported methods are
// safe for concurrent use, except that Run may be called only once.
type Server struct {
	cfg     Config
	feed    *watchcache.Feed
	api     *endpoints.API
	crds    *crd.Follower
	disco   *discovery.Discovery
	openapi *openapi.Server // nil: not served
	remotes *aggregation.Aggregator
	health  daemon.Health
	pages   http.Handler // health
	flow    *flowcontrol.Limiter
	limits  limits
	metrics *metrics
	known   authn.Authenticator // cfg.Authenticator without metrics

	rechecks atomic.Uint64 // counts started long-running requests, to spread their rechecks

	rolesDone  atomic.Bool // set once the default roles are reconciled
	otherRange sync.Once   // logs that the ServiceCIDR kubernetes differs from the flag

	closing   context.Context // ends when watches must end
	close     context.CancelFunc
	bootstrap atomic.Pointer[error] // the result of bootstrap; nil before the first attempt
	draining  atomic.Bool

	telling   sync.Mutex          // held while the server's endpoints are written
	sightings map[string]sighting // of the servers' Leases, by name; guarded by telling
}

// New builds a server and registers its metrics. It starts nothing; call Run.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = defaultRequestTimeout
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.Access == nil {
		access, err := NewAccess(AccessConfig{})
		if err != nil {
			return nil, err
		}
		cfg.Access = access
	}
	s := &Server{cfg: cfg, limits: newLimits(&cfg), sightings: map[string]sighting{}}
	s.flow = flowcontrol.New(flowcontrol.Config{
		Reads: cfg.MaxReads, Writes: cfg.MaxWrites, LongRunning: cfg.MaxLongRunning, Plain: cfg.NoPriorities,
		Wait: cfg.RequestTimeout / 4, Now: cfg.Now, Registry: cfg.Registry,
	})
	s.closing, s.close = context.WithCancel(context.Background())
	s.metrics = newMetrics(cfg.Registry, s.flow)
	store := s.metrics.timed(cfg.Store)
	s.feed = watchcache.NewFeed(store, "/registry/", cfg.Log)
	cfg.Access.ready = s.feed.Ready
	s.disco = discovery.New(discovery.Config{
		Verbs: endpoints.Verbs, SubresourceVerbs: endpoints.SubresourceVerbs, Address: cfg.address(),
		Priority: aggregation.Priority,
	})
	s.remotes = s.aggregator()
	s.crds = crd.NewFollower(crd.Config{
		Server: s, BuiltIn: builtIn(cfg.Kinds), Now: cfg.Now, Log: cfg.Log,
		Dial: cfg.Admission.Webhooks.Dial, Metrics: conversion.NewMetrics(cfg.Registry),
	})
	if cfg.OpenAPI != nil {
		s.openapi = openapi.New(*cfg.OpenAPI, cfg.Scheme, cfg.Log)
	}
	var err error
	s.api, err = endpoints.New(endpoints.Config{
		Scheme: cfg.Scheme, Store: store, Feed: s.feed, Kinds: cfg.Kinds, Followers: s.followers(),
		Changed: s.setKinds, OpenAPI: s.v3(), Now: cfg.Now, Random: cfg.Random, Log: cfg.Log, Closing: s.closing, Observe: s.metrics,
		MayCreate: s.mayCreate, Await: s.crds.Await,
	})
	if err != nil {
		return nil, err
	}
	s.remotes.Objects = s.api
	s.metrics.serves = s.api.Serves
	cfg.Registry.MustRegister(s.feed)
	s.completeAccess()
	s.api.Admission = cfg.Admission.Chain(admission.Host{
		Objects: s.api, Authorizer: s.cfg.Authorizer, Metrics: cfg.Registry, Now: cfg.Now, ServiceCIDR: cfg.ServiceCIDR, Address: cfg.Advertise.Addr(),
	})
	s.addChecks(store)
	return s, nil
}

// builtIn returns the types of kinds.
func builtIn(kinds []*registry.Kind) (out []*scheme.Kind) {
	for _, k := range kinds {
		out = append(out, k.Kind)
	}
	return out
}

// v3 returns the function that looks up OpenAPI v3 documents, nil without
// OpenAPI.
func (s *Server) v3() func(string) []byte {
	if s.openapi == nil {
		return nil
	}
	return s.openapi.V3
}

// setKinds updates metrics, discovery and OpenAPI for the served kinds. An
// error is logged: kinds that cannot be described are served nevertheless.
func (s *Server) setKinds(kinds []*registry.Kind) {
	s.metrics.setKinds(kinds)
	s.remotes.SetKinds(kinds)
	if err := s.disco.SetKinds(kinds); err != nil {
		s.cfg.Log.Error("publish discovery failed", "err", err)
	}
	if s.openapi != nil {
		s.openapi.SetKinds(kinds)
	}
}

// AddKind starts serving a kind while the server runs; see endpoints.API.Add.
func (s *Server) AddKind(ctx context.Context, k *registry.Kind) error { return s.api.Add(ctx, k) }

// RemoveKind stops serving a kind; see endpoints.API.Remove.
func (s *Server) RemoveKind(gr schema.GroupResource) { s.api.Remove(gr) }

// ChangeKinds starts and stops serving kinds at once; see endpoints.API.Change.
func (s *Server) ChangeKinds(ctx context.Context, add []*registry.Kind, remove []schema.GroupResource) error {
	return s.api.Change(ctx, add, remove)
}

// Stored returns the objects of a resource as they are stored; see endpoints.API.Stored.
func (s *Server) Stored(ctx context.Context, gvr schema.GroupVersionResource) ([]scheme.Object, error) {
	return s.api.Stored(ctx, gvr)
}

// address returns the host:port that discovery shows, empty if there is none.
func (c *Config) address() string {
	if c.Advertise.IsValid() {
		return c.Advertise.String()
	}
	if c.Listener != nil {
		return c.Listener.Addr().String()
	}
	return ""
}

// completeAccess sets the default authenticator and authorizer, and adds
// metrics to the authenticator.
func (s *Server) completeAccess() {
	if s.cfg.Authenticator == nil {
		s.cfg.Authenticator = s.cfg.Authn.authenticator(s.api)
	}
	s.known = s.cfg.Authenticator
	s.cfg.Authenticator = newAuthnMetrics(s.cfg.Registry).counted(s.known, s.cfg.Now)
	if s.cfg.Authorizer == nil {
		s.cfg.Authorizer = s.cfg.Access
	}
}

// Backend returns in-process access to the objects, without authorization, for
// code that runs outside of requests.
func (s *Server) Backend() registry.Backend { return s.api }

// addChecks registers the health checks of livez and readyz.
func (s *Server) addChecks(store storage.Store) {
	s.health.AddLive("etcd", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := store.Revision(ctx)
		return err
	})
	s.health.Add("informer-sync", s.feed.Ready)
	s.health.Add("poststarthook/bootstrap", s.bootstrapped)
	s.health.Add("autoregister-completion", s.remotes.Registered)
	s.health.Add("poststarthook/crd-informer-synced", s.crds.Ready)
	s.health.Add("shutdown", func() error {
		if s.draining.Load() {
			return errors.New("the server is shutting down")
		}
		return nil
	})
	if s.cfg.Encryption != nil {
		s.health.Add("kms-providers", s.cfg.Encryption.Healthy)
	}
	s.pages = s.health.Handler()
}

// Run serves until ctx ends, then shuts down gracefully: readiness fails,
// clients have ShutdownDelay to move to other servers, watches end, requests in
// flight finish. It blocks until then. It returns the first error that ends the
// server early.
func (s *Server) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	g.Go(func() error { return unlessEnded(life, s.feed.Run(life)) })
	if s.cfg.Encryption != nil {
		g.Go(func() error { return unlessEnded(life, s.cfg.Encryption.Run(life)) })
	}
	if s.cfg.Audit != nil {
		g.Go(func() error { return unlessEnded(life, s.cfg.Audit.Run(life)) })
	}
	g.Go(func() error { s.keepBootstrapped(life); return nil })
	g.Go(func() error { s.remotes.Run(life); return nil })
	g.Go(func() error { s.keepRepaired(life); return nil })
	g.Go(func() error { s.forgetEvents(life); return nil })
	g.Go(func() error { s.publishRevocations(life); return nil })
	g.Go(func() error { s.crds.Run(life); return nil })
	g.Go(func() error { s.flow.Run(life); return nil })
	g.Go(func() error { s.keepDangling(life); return nil })
	g.Go(func() error { s.recordTokenUse(life); return nil })
	if s.cfg.CompactEvery >= 0 {
		c := &storage.Compactor{Store: s.cfg.Store, Key: compactKey, Interval: s.cfg.CompactEvery, Log: s.cfg.Log}
		g.Go(func() error { return unlessEnded(life, c.Run(life)) })
	}
	s.cfg.Authn.run(life, g)
	web := s.listen(g)
	g.Go(func() error {
		defer end()
		select {
		case <-life.Done():
		case <-ctx.Done():
			s.shutDown(life, web)
		}
		s.close()
		if web != nil {
			web.Close()
		}
		return nil
	})
	return g.Wait()
}

// unlessEnded returns err, or nil if ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// shutDown shuts down gracefully, in the order that Run documents. It blocks
// for at most leaveTimeout, ShutdownDelay and drainTimeout.
func (s *Server) shutDown(ctx context.Context, web *http.Server) {
	s.draining.Store(true)
	s.cfg.Log.Info("shutting down", "delay", s.cfg.ShutdownDelay)
	if s.cfg.Advertise.IsValid() {
		leaving, cancel := context.WithTimeout(ctx, leaveTimeout)
		if err := s.leave(leaving); err != nil {
			s.cfg.Log.Warn("remove this server from the endpoints failed", "err", err)
		}
		cancel()
	}
	select {
	case <-time.After(s.cfg.ShutdownDelay):
	case <-ctx.Done():
	}
	s.close()
	if web == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		s.cfg.Log.Warn("requests still in flight at the end of the shutdown timeout", "err", err)
	}
}

// The limits of connections. A client that needs more concurrent requests than
// maxStreams opens another HTTP/2 connection.
const (
	maxStreams    = 250
	maxHeader     = 128 << 10 // an exec's command is in the URL, and Linux limits one argument to this
	pingAfter     = 30 * time.Second
	pingTimeout   = 15 * time.Second
	headerTimeout = 32 * time.Second
	idleTimeout   = 90 * time.Second
)

// stall returns the time in which a client must read one piece of a response.
func (s *Server) stall() time.Duration { return min(stallTimeout, s.cfg.RequestTimeout) }

// listen starts to serve on the listener in a goroutine of g. It returns nil if
// there is no listener.
func (s *Server) listen(g *errgroup.Group) *http.Server {
	if s.cfg.Listener == nil {
		return nil
	}
	web := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         s.cfg.TLS,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ReadTimeout:       s.cfg.RequestTimeout + s.stall(), // recorder.go extends these for slow clients
		WriteTimeout:      s.cfg.RequestTimeout + s.stall(),
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: s.stall(),
		},
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	listener := s.cfg.Listener
	if c := s.cfg.Authn.Connections; c != nil {
		listener, web.ConnContext = c.Listener(listener), c.Context
	}
	g.Go(func() error {
		var err error
		if s.cfg.TLS != nil {
			err = web.ServeTLS(listener, "", "")
		} else {
			err = web.Serve(listener)
		}
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serve on %s: %w", s.cfg.Listener.Addr(), err)
	})
	s.cfg.Log.Info("serving", "address", s.cfg.Listener.Addr().String())
	return web
}
