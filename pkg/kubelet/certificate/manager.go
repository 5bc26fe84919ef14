package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/client/csr"
)

// Config configures a Manager.
type Config struct {
	Store   Store
	Initial *tls.Certificate // used if the store has no valid certificate; may be nil
	// Ask returns the certificate to request; nil: not known yet. Call Poke
	// when its result changes. Ask must be safe for concurrent use.
	Ask func() *csr.Ask
	// Client returns a client with a credential that may request the certificate.
	Client func() *client.Client
	// Changed is called after a new certificate was stored; may be nil.
	Changed func()
	// Registry registers the metrics of Which, "client" or "server"; nil: no metrics.
	Registry prometheus.Registerer
	Which    string
	Log      *slog.Logger
}

// A certificate is renewed at a random moment in this part of its lifetime, so
// that the nodes do not renew at the same time.
const (
	earliest = 0.7
	latest   = 0.9
)

const (
	firstRetry = 2 * time.Second
	lastRetry  = 2 * time.Minute
	// issueTimeout is how long one attempt waits for approval and signature; the next
	// attempt continues with the same request.
	issueTimeout = 15 * time.Minute
)

// Manager requests and renews one certificate. Its methods may be called from
// several goroutines, but Obtain must not be called while Run runs.
type Manager struct {
	cfg    Config
	wake   chan struct{}
	errors prometheus.Counter

	mu   sync.Mutex
	cert *tls.Certificate // nil: there is no certificate yet
	leaf *x509.Certificate
	next time.Time // when to renew
}

// New returns a Manager that uses the stored certificate, or else cfg.Initial,
// unless it has expired. A stored certificate that cannot be read is logged.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, wake: make(chan struct{}, 1)}
	m.errors = register(cfg.Registry, cfg.Which, func() float64 { return m.Left().Seconds() })
	stored, err := cfg.Store.Load()
	if err != nil {
		// A damaged file does not prevent the start: a new certificate can be requested.
		cfg.Log.Warn("read stored certificate failed", "error", err)
	}
	for _, cert := range []*tls.Certificate{stored, cfg.Initial} {
		if leaf := leafOf(cert); leaf != nil && time.Now().Before(leaf.NotAfter) {
			m.take(cert, leaf)
			break
		}
	}
	return m
}

func leafOf(cert *tls.Certificate) *x509.Certificate {
	if cert == nil || len(cert.Certificate) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil
	}
	return leaf
}

// take makes cert the present certificate and chooses when to renew it.
func (m *Manager) take(cert *tls.Certificate, leaf *x509.Certificate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	share := earliest + (latest-earliest)*rand.Float64()
	m.cert, m.leaf, m.next = cert, leaf, leaf.NotBefore.Add(time.Duration(share*float64(life)))
}

// Current returns the present certificate, or nil if there is none or if it has
// expired.
func (m *Manager) Current() *tls.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaf == nil || time.Now().After(m.leaf.NotAfter) {
		return nil
	}
	return m.cert
}

// Left returns the remaining lifetime of the present certificate; 0 without one.
func (m *Manager) Left() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaf == nil {
		return 0
	}
	return max(0, time.Until(m.leaf.NotAfter))
}

// Poke makes Run call Config.Ask again. It does not block.
func (m *Manager) Poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run requests the first certificate and renews it until ctx ends. It retries
// with back-off and always returns nil.
func (m *Manager) Run(ctx context.Context) error {
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry, Jitter: 0.1}
	for ctx.Err() == nil {
		wait, due := m.due()
		if due {
			err := m.Obtain(ctx)
			switch {
			case err == nil:
				retry.Reset()
				continue
			case ctx.Err() != nil:
				return nil
			}
			m.errors.Inc()
			wait = retry.Next()
			m.cfg.Log.Warn("request certificate failed", "name", m.cfg.Store.Name, "left", m.Left().Round(time.Second), "retry", wait, "error", err)
		}
		wake := m.wake
		if due {
			wake = nil // Poke does not shorten the back-off
		}
		_ = backoff.SleepOrWake(ctx, wait, wake) // an ended ctx ends the loop
	}
	return nil
}

// due reports whether to request a certificate now, or else after which time to
// check again.
func (m *Manager) due() (wait time.Duration, due bool) {
	ask := m.cfg.Ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ask == nil:
		return time.Hour, false // Poke ends the wait
	case m.leaf == nil || !csr.Fits(m.leaf, &ask.Template) || m.cfg.Store.renewalRequested():
		return 0, true
	}
	wait = time.Until(m.next)
	return wait, wait <= 0
}

// Obtain requests a certificate, waits until it is issued, stores it and makes
// it the present one. It blocks for at most patience or until ctx ends.
func (m *Manager) Obtain(ctx context.Context) error {
	ask := m.cfg.Ask()
	if ask == nil {
		return errors.New("the names for the certificate are not known yet")
	}
	key, err := m.cfg.Store.Key()
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	text, err := csr.Obtain(wait, m.cfg.Client(), *ask, key)
	if errors.Is(err, csr.ErrRefused) {
		err = errors.Join(err, m.cfg.Store.DropKey()) // the next attempt creates another request
	}
	if err != nil {
		return err
	}
	cert, err := m.cfg.Store.Save(text, key, time.Now())
	if cert == nil {
		return fmt.Errorf("store the certificate: %w", err)
	}
	if err != nil {
		m.cfg.Log.Warn("remove old certificates failed", "name", m.cfg.Store.Name, "error", err)
	}
	leaf := leafOf(cert)
	m.take(cert, leaf)
	m.cfg.Log.Info("new certificate", "name", m.cfg.Store.Name, "subject", leaf.Subject.CommonName, "until", leaf.NotAfter)
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
	return nil
}
