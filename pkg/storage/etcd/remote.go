package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Config describes how to connect to an etcd cluster. Servers and Log are required.
type Config struct {
	Servers  []string    // URLs such as https://host:2379
	CAFile   string      // CA of the servers' certificates; default: the system's CAs
	CertFile string      // client certificate and key, read again for each connection
	KeyFile  string      //
	TLS      *tls.Config // replaces the three files
	Log      *slog.Logger
}

// Open connects to a cluster. It requests the version of each server, and fails if
// no server answers within 5 s or if one is older than 3.4.0. The caller must call
// Close.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if len(cfg.Servers) == 0 {
		return nil, errors.New("no etcd server is named")
	}
	tlsConfig := cfg.TLS
	if tlsConfig == nil {
		var err error
		if tlsConfig, err = tlsFromFiles(cfg); err != nil {
			return nil, err
		}
	}
	logger := newLogger(cfg.Log)
	logger.start()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Servers,
		TLS:                  tlsConfig,
		Logger:               logger.zap(),
		DialTimeout:          callTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: callTimeout,
		MaxUnaryRetries:      3,
		BackoffWaitBetween:   50 * time.Millisecond,
		DialOptions:          []grpc.DialOption{grpc.WithUserAgent("podium")},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(cfg.Servers, ", "), err)
	}
	s := &Store{client: client, log: cfg.Log, snapshot: client.Snapshot, closers: []func() error{client.Close}}
	if s.marks, err = checkVersions(ctx, client, cfg); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// tlsFromFiles returns nil if no file is configured: the scheme of the URL then
// selects TLS.
func tlsFromFiles(cfg Config) (*tls.Config, error) {
	if cfg.CAFile == "" && cfg.CertFile == "" && cfg.KeyFile == "" {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read etcd's CA: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read etcd's CA: %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" || cfg.KeyFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the client certificate for etcd: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return out, nil
}

// checkVersions reports whether the progress notifications of every server that
// answers can be trusted.
func checkVersions(ctx context.Context, client *clientv3.Client, cfg Config) (marks bool, err error) {
	type reply struct {
		server  string
		version string
		err     error
	}
	replies := make(chan reply, len(cfg.Servers))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, server := range cfg.Servers {
		go func() {
			r := reply{server: server}
			if resp, err := client.Status(ctx, server); err != nil {
				r.err = fmt.Errorf("%s: %w", server, err)
			} else {
				r.version = resp.Version
			}
			replies <- r
		}()
	}
	marks = true
	answered := 0
	var silent []error
	for range cfg.Servers {
		r := <-replies
		if r.err != nil {
			silent = append(silent, r.err)
			continue
		}
		answered++
		v, err := parseVersion(r.version)
		if err != nil {
			return false, fmt.Errorf("etcd at %s: %w", r.server, err)
		}
		if v.less(oldest) {
			return false, fmt.Errorf("etcd at %s is version %s; at least %s is needed (this build's own etcd command will do)", r.server, r.version, oldest)
		}
		if !v.truthful() {
			marks = false
			cfg.Log.Info("old etcd version: a consistent read after a write outside of this server's keys costs a write",
				"server", r.server, "version", r.version)
		}
	}
	if answered == 0 {
		return false, fmt.Errorf("etcd does not respond; check that it runs, that the addresses are right, and that it accepts this server's certificate: %w", errors.Join(silent...))
	}
	for _, err := range silent {
		cfg.Log.Warn("etcd server does not respond", "err", err)
	}
	return marks, nil
}
