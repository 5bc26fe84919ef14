package dns

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/client"
)

// Config holds the dependencies and settings of a Server.
type Config struct {
	Client   *client.Client
	Log      *slog.Logger
	Registry *prometheus.Registry

	// PacketConn and Listener receive queries by UDP and TCP. Run closes them.
	PacketConn net.PacketConn
	Listener   net.Listener

	Domain string        // of the cluster, such as cluster.local
	TTL    time.Duration // of the cluster's own records
	Pods   bool          // answer for 1-2-3-4.NAMESPACE.pod.DOMAIN

	Upstream    []string // other name servers, host:port; empty: only the cluster's names are resolved
	Exchange    Exchange
	CacheBytes  int
	CacheTTL    time.Duration // maximum time for which an answer of another server is cached
	MaxForwards int           // maximum number of queries that wait for other servers
	MaxConns    int           // maximum number of TCP connections of clients
}

// Defaults.
const (
	defaultDomain      = "cluster.local"
	defaultTTL         = 5 * time.Second
	defaultCacheBytes  = 8 << 20
	defaultCacheTTL    = 5 * time.Minute
	defaultMaxForwards = 1000
	defaultMaxConns    = 1000
)

// Validate returns all errors, joined.
func (c *Config) Validate() error {
	var errs []error
	for _, msg := range validation.IsDNS1123Subdomain(strings.TrimSuffix(c.Domain, ".")) {
		errs = append(errs, fmt.Errorf("--cluster-domain=%q: %s", c.Domain, msg))
	}
	if c.TTL < 0 || c.TTL > time.Hour || c.TTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("--ttl=%s: use whole seconds up to 1h", c.TTL))
	}
	if c.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("--cache-bytes=%d: use 0, for no cache, or more", c.CacheBytes))
	}
	if c.CacheTTL < 0 {
		errs = append(errs, fmt.Errorf("--cache-max-ttl=%s: use 0, for no cache, or more", c.CacheTTL))
	}
	if c.MaxForwards < 1 {
		errs = append(errs, fmt.Errorf("--max-forwards=%d: use 1 or more", c.MaxForwards))
	}
	if c.MaxConns < 1 {
		errs = append(errs, fmt.Errorf("--max-connections=%d: use 1 or more", c.MaxConns))
	}
	return errors.Join(errs...)
}

func (c *Config) origin() string { return dns.Fqdn(strings.ToLower(c.Domain)) }
