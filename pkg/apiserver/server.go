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

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/eventratelimit"
	"podium/pkg/apiserver/admission/podsecurity"
	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
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

// Config is everything a server is made of. What is not marked as optional
// must be set.
type Config struct {
	Scheme *scheme.Scheme
	Store  storage.Store
	Kinds  []*registry.Kind
	Log    *slog.Logger

	Encryption Encryption // optional: what keeps Store's values encrypted

	Listener net.Listener         // optional: without it only Handler serves
	TLS      *tls.Config          // optional: plain HTTP without it
	Registry *prometheus.Registry // optional
	OpenAPI  *openapi.Documents   // optional: without it there is no /openapi and no server-side apply

	// Who may do what. Without Authenticator: those that Authn knows. Without
	// Authorizer: Access.
	Authenticator authn.Authenticator
	Authn         Authentication
	Authorizer    authz.Authorizer
	Access        *Access // the system's own: knows the roles, also when Authorizer is another; default: Node, RBAC
	Admission     admission.Chain
	Disabled      registry.PluginSet // rules of admission that are off
	PodSecurity   podsecurity.Config // what pods are held to beside their namespaces' labels
	EventLimits   eventratelimit.Config

	// ExternalIPRanges are where new spec.externalIPs of Services may be, unless
	// DenyServiceExternalIPs is disabled; empty: nowhere.
	ExternalIPRanges []netip.Prefix

	Audit     *audit.Auditor // optional
	Profiling bool           // serve /debug/pprof

	// Snapshot begins a copy of all that is stored, as it is stored, with its
	// SHA-256 behind it; optional: without it /snapshot is not served.
	Snapshot func(context.Context) (io.ReadCloser, error)

	// Repair puts right what a crash between two writes has left behind:
	// optional, called once the server is up and now and then.
	Repair func(context.Context, registry.Backend) error

	Now    func() time.Time // optional: time.Now
	Random io.Reader        // optional: crypto/rand; safe for concurrent use

	MaxReads, MaxWrites int           // requests in flight; 0: no limit
	MaxLongRunning      int           // watches and streams of one ordinary user; 0: no limit
	MaxWriteRate        int64         // bytes a second that one ordinary user may write to the store; 0: no limit
	Memory              int64         // bytes that decoding bodies may take at the same time; 0: no limit
	RequestTimeout      time.Duration // of what is not a watch or a stream; 0: 60 s
	CompactEvery        time.Duration // how long the past is kept; 0: 5 minutes, negative: for ever
	EventTTL            time.Duration // how long an event is kept that does not happen again; 0: for ever
	ShutdownDelay       time.Duration // from failing readiness to closing the door

	// Advertise is where other machines reach this server; the Service
	// default/kubernetes points there. Without it that Service is not made.
	Advertise   netip.AddrPort
	ServiceCIDR netip.Prefix // its first address is the Service's
	Identity    string       // this server among several; default: the host's name
}

// Encryption is the keys that the store's values are encrypted with.
type Encryption interface {
	Run(ctx context.Context) error // keeps them current
	Healthy() error
}

const (
	defaultRequestTimeout = 60 * time.Second
	compactKey            = "/registry/podium/compactor"
	drainTimeout          = 30 * time.Second // how long requests under way may take at shutdown
	leaveTimeout          = 2 * time.Second
)

// Server is the apiserver.
type Server struct {
	cfg     Config
	feed    *watchcache.Feed
	api     *endpoints.API
	disco   *discovery.Discovery
	openapi *openapi.Server // nil: none
	health  daemon.Health
	pages   http.Handler // health
	flow    *flowcontrol.Inflight
	limits  limits
	metrics *metrics
	known   authn.Authenticator // as cfg.Authenticator, without counting

	rechecks atomic.Uint64 // of long-running requests that have begun, to spread them

	rolesDone atomic.Bool // the default roles have been looked at

	closing   context.Context // ends when watches are to end
	close     context.CancelFunc
	bootstrap atomic.Pointer[error] // nil until done once
	draining  atomic.Bool

	telling   sync.Mutex          // held while others are told which servers there are
	sightings map[string]sighting // of servers' Leases, by name; guarded by telling
}

// New builds a server; Run brings it to life.
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
	s.flow = flowcontrol.NewInflight(flowcontrol.Config{Reads: cfg.MaxReads, Writes: cfg.MaxWrites, LongRunning: cfg.MaxLongRunning})
	cfg.Registry.MustRegister(s.flow)
	s.closing, s.close = context.WithCancel(context.Background())
	s.metrics = newMetrics(cfg.Registry, cfg.Kinds, s.flow)
	store := s.metrics.timed(cfg.Store)
	s.feed = watchcache.NewFeed(store, "/registry/", cfg.Log)
	cfg.Access.ready = s.feed.Ready
	s.api = endpoints.New(endpoints.Config{
		Scheme: cfg.Scheme, Store: store, Feed: s.feed, Kinds: cfg.Kinds, Followers: s.followers(), Admission: s.admission(), Disabled: cfg.Disabled,
		OpenAPI: cfg.v3(), Now: cfg.Now, Random: cfg.Random, Log: cfg.Log, Closing: s.closing, Observe: s.metrics,
		MayCreate: s.mayCreate,
	})
	s.metrics.serves = s.api.Serves
	cfg.Registry.MustRegister(s.feed)
	var err error
	s.disco, err = discovery.New(discovery.Config{
		Kinds: cfg.Kinds, Verbs: endpoints.Verbs, SubresourceVerbs: endpoints.SubresourceVerbs, Address: cfg.address(),
	})
	if err != nil {
		return nil, err
	}
	if cfg.OpenAPI != nil {
		if s.openapi, err = openapi.New(*cfg.OpenAPI); err != nil {
			return nil, err
		}
	}
	s.completeAccess()
	s.addChecks(store)
	return s, nil
}

func (c *Config) v3() func(string) []byte {
	if c.OpenAPI == nil {
		return nil
	}
	return c.OpenAPI.V3
}

// address is host:port as discovery shows it.
func (c *Config) address() string {
	if c.Advertise.IsValid() {
		return c.Advertise.String()
	}
	if c.Listener != nil {
		return c.Listener.Addr().String()
	}
	return ""
}

// completeAccess fills in who is known and who may do what.
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

// Backend is the server's own access to its objects, for the kinds' code that
// lives outside of requests.
func (s *Server) Backend() registry.Backend { return s.api }

func (s *Server) addChecks(store storage.Store) {
	s.health.AddLive("etcd", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := store.Revision(ctx)
		return err
	})
	s.health.Add("informer-sync", s.feed.Ready)
	s.health.Add("poststarthook/bootstrap", func() error {
		if err := s.bootstrap.Load(); err != nil {
			return *err
		}
		return errors.New("not finished")
	})
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

// Run serves until ctx ends, then shuts down in good order: readiness fails,
// new clients have ShutdownDelay to go elsewhere, watches end, requests under
// way are finished.
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
	g.Go(func() error { s.keepRepaired(life); return nil })
	g.Go(func() error { s.forgetEvents(life); return nil })
	g.Go(func() error { s.publishRevocations(life); return nil })
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

// unlessEnded is err, unless it only says that ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// shutDown closes the door, the later steps only after the earlier ones.
func (s *Server) shutDown(ctx context.Context, web *http.Server) {
	s.draining.Store(true)
	s.cfg.Log.Info("shutting down", "delay", s.cfg.ShutdownDelay)
	if s.cfg.Advertise.IsValid() {
		leaving, cancel := context.WithTimeout(ctx, leaveTimeout)
		if err := s.leave(leaving); err != nil {
			s.cfg.Log.Warn("leave the servers of the cluster", "err", err)
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
		s.cfg.Log.Warn("some requests did not end in time", "err", err)
	}
}

// The shape of connections. A client with more requests than one HTTP/2
// connection may have opens another.
const (
	maxStreams    = 250
	maxHeader     = 128 << 10 // the command of an exec is in the URL: as long as Linux lets one argument be
	pingAfter     = 30 * time.Second
	pingTimeout   = 15 * time.Second
	headerTimeout = 32 * time.Second
	idleTimeout   = 90 * time.Second
)

// stall is how long a client may take to read a piece of an answer.
func (s *Server) stall() time.Duration { return min(stallTimeout, s.cfg.RequestTimeout) }

// listen begins to serve on the listener, if there is one.
func (s *Server) listen(g *errgroup.Group) *http.Server {
	if s.cfg.Listener == nil {
		return nil
	}
	web := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         s.cfg.TLS,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ReadTimeout:       s.cfg.RequestTimeout + s.stall(), // recorder.go extends these where it is right
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
