package apiserver

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"podium/pkg/apiserver/aggregation"
	"podium/pkg/apiserver/discovery"
	"podium/pkg/apiserver/nodeproxy"
	"podium/pkg/apiserver/openapi"
	"podium/pkg/client/certfile"
)

// proxyFlags are the flags of the proxy to aggregated API servers.
type proxyFlags struct{ cert, key string }

func (o *proxyFlags) flags(f *pflag.FlagSet, c *aggregation.Config) {
	f.StringVar(&o.cert, "proxy-client-cert-file", "", "file with the client certificate that proves this server's identity to aggregated API servers; read again when it changes")
	f.StringVar(&o.key, "proxy-client-key-file", "", "file with the key of that certificate")
	f.BoolVar(&c.ToEndpoints, "enable-aggregator-routing", false, "connect to endpoints of the Services of aggregated API servers, instead of their cluster IPs")
}

// build reads the certificate. Connections are subject to the restrictions of nodes:
// they do not reach this server itself or local addresses.
func (o *proxyFlags) build(nodes *nodeproxy.Proxy, c *aggregation.Config) error {
	c.Dial = nodes.Dial
	if o.cert == "" && o.key == "" {
		return nil
	}
	if o.cert == "" || o.key == "" {
		return errors.New("--proxy-client-cert-file and --proxy-client-key-file belong together")
	}
	pair, err := certfile.NewPair(o.cert, o.key)
	if err != nil {
		return fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	c.Certificate = pair.Get
	return nil
}

// aggregator returns the aggregator of other API servers. Its objects are set later.
func (s *Server) aggregator() *aggregation.Aggregator {
	cfg := s.cfg.Aggregation
	cfg.Publish, cfg.Closing = s.publishRemote, s.closing
	// Before the stored definitions are served, their APIServices look superfluous.
	cfg.Ready = func() error { return errors.Join(s.bootstrapped(), s.crds.Ready()) }
	cfg.Registry, cfg.Log = s.cfg.Registry, s.cfg.Log
	return aggregation.New(cfg)
}

// publishRemote adds what other API servers serve to discovery and OpenAPI. An error is
// logged: their requests are proxied nevertheless.
func (s *Server) publishRemote(all []aggregation.Published) {
	var remote []discovery.Remote
	documents := map[string]openapi.Remote{}
	for _, p := range all {
		remote = append(remote, p.Remote)
		if p.OpenAPI != nil || p.OpenAPIV2 != nil {
			documents[p.Path] = openapi.Remote{V2: p.OpenAPIV2, V3: p.OpenAPI}
		}
	}
	if err := s.disco.SetRemote(remote); err != nil {
		s.cfg.Log.Error("publish discovery of aggregated API servers failed", "err", err)
	}
	if s.openapi != nil {
		s.openapi.SetRemote(documents)
	}
}
