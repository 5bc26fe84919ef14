package metricsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/frontproxy"
	"podium/pkg/client/informer"
	"podium/pkg/daemon"
	"podium/pkg/metricsserver/api"
	"podium/pkg/metricsserver/usage"
	"podium/pkg/scheme"
)

// server is the metrics-server.
type server struct {
	cfg      Config
	store    *usage.Store
	nodes    *informer.Informer[*corev1.Node]
	pods     *informer.Informer[*corev1.Pod]
	proxies  *frontproxy.Follower
	identity *identity // nil: the certificate is not published
	scraper  *scraper
	health   *daemon.Health
	handler  http.Handler
}

// Run serves until ctx ends or a part fails.
func Run(ctx context.Context, cfg Config) error {
	s, err := newServer(cfg)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

func newServer(cfg Config) (*server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &server{
		cfg:     cfg,
		store:   usage.NewStore(cfg.Resolution, 2*cfg.Resolution+cfg.RequestTimeout, cfg.Now), // one request in two may fail
		nodes:   informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{LabelSelector: cfg.NodeSelector, Log: cfg.Log, Transform: stripNode}),
		pods:    informer.New(client.For[*corev1.Pod](cfg.Client), informer.Options{FieldSelector: "status.phase=Running", Log: cfg.Log, Transform: stripPod}),
		proxies: frontproxy.NewFollower(cfg.Client, cfg.Log, cfg.Now),
		health:  &daemon.Health{},
	}
	if cfg.CertFile == "" && cfg.Service != (types.NamespacedName{}) {
		var err error
		if s.identity, err = newIdentity(cfg.Client, cfg.Service, cfg.Log, cfg.Now); err != nil {
			return nil, err
		}
		s.cfg.Certificate = s.identity.certificate
		s.health.Add("serving-certificate", s.identity.ready)
	}
	s.scraper = &scraper{
		nodes: s.nodes, store: s.store, sample: cfg.Sample, resolution: cfg.Resolution,
		metrics: newMetrics(cfg.Registry, s.store), log: cfg.Log, now: cfg.Now, running: map[string]bool{},
	}
	s.health.Add("front-proxies", s.proxies.Ready)
	s.health.Add("metadata-informer-sync", s.synced)
	s.health.Add("metric-storage-ready", s.measured)
	s.handler = s.newHandler()
	return s, nil
}

func (s *server) newHandler() http.Handler {
	who := access.New(access.Config{
		Reviews: access.Reviews{Client: s.cfg.Client}, Tokens: true, Proxy: s.proxies.User, Now: s.cfg.Now,
		TokenTTL: s.cfg.TokenTTL, AllowTTL: s.cfg.AllowTTL, DenyTTL: s.cfg.DenyTTL,
	})
	serve := &api.Server{
		Nodes: s.nodes, Pods: s.pods, Usage: s.store, Access: who,
		Pages: daemon.Mux(s.health, s.cfg.Registry), Open: s.cfg.IsOpen, Log: s.cfg.Log, Now: s.cfg.Now,
	}
	return serve.Handler()
}

func (s *server) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.follow(ctx) })
	g.Go(func() error { return s.serve(ctx) })
	g.Go(func() error { return daemon.Watchdog(ctx, s.health.Live) })
	daemon.NotifyReady()
	defer daemon.NotifyStopping()
	return g.Wait()
}

// follow keeps everything that is served up to date, until ctx ends.
func (s *server) follow(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.pods.Run(ctx) })
	g.Go(func() error { return s.proxies.Run(ctx) })
	g.Go(func() error { return s.scraper.run(ctx) })
	if s.identity != nil {
		g.Go(func() error { return s.identity.watch.Run(ctx) })
		g.Go(func() error { return s.identity.run(ctx) })
	}
	return g.Wait()
}

func (s *server) serve(ctx context.Context) error {
	cfg, err := s.cfg.TLS()
	if err != nil {
		return err
	}
	// Package frontproxy verifies the certificate with each request: the CAs change.
	cfg.ClientAuth = tls.RequestClientCert
	return daemon.Serve(ctx, daemon.ServeConfig{Listener: s.cfg.Listener, TLS: cfg, Handler: s.handler, Log: s.cfg.Log})
}

func (s *server) synced() error {
	if !s.nodes.Synced() || !s.pods.Synced() {
		return errors.New("waiting for the first list of nodes and pods")
	}
	return nil
}

// measured returns nil if there is something to serve.
func (s *server) measured() error {
	if nodes, _ := s.store.Known(); nodes == 0 && s.nodes.Count("") > 0 {
		return errors.New("no node has been measured twice yet")
	}
	return nil
}

// stripNode drops what is not needed of a node.
func stripNode(obj scheme.Object) {
	n := obj.(*corev1.Node)
	*n = corev1.Node{
		ObjectMeta: strip(n.ObjectMeta),
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses, DaemonEndpoints: n.Status.DaemonEndpoints},
	}
}

// stripPod drops what is not needed of a pod.
func stripPod(obj scheme.Object) {
	p := obj.(*corev1.Pod)
	*p = corev1.Pod{ObjectMeta: strip(p.ObjectMeta), Spec: corev1.PodSpec{NodeName: p.Spec.NodeName}}
}

func strip(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels}
}
