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

	"podium/pkg/client"
	"podium/pkg/client/csr"
)

// Config says which certificate is kept, and how it is asked for.
type Config struct {
	Store   Store
	Initial *tls.Certificate // the one at hand while the store has none; nil: none
	// Ask is what is wanted now; nil: not known yet. When it changes, call Poke.
	Ask func() *csr.Ask
	// Client speaks for who may ask for it.
	Client func() *client.Client
	// Changed is called after each new certificate; nil: nobody asks.
	Changed func()
	// Registry shows the metrics of Which: "client" or "server"; nil: none.
	Registry prometheus.Registerer
	Which    string
	Log      *slog.Logger
}

// When the next certificate is asked for: at a moment in this part of the
// present one's life that is different on each node.
const (
	earliest = 0.7
	latest   = 0.9
)

const (
	firstRetry = 2 * time.Second
	lastRetry  = 2 * time.Minute
	// patience is how long one request may wait for people to approve it;
	// then it is taken up again.
	patience = 15 * time.Minute
)

// Manager keeps one certificate good.
type Manager struct {
	cfg    Config
	wake   chan struct{}
	errors prometheus.Counter

	mu   sync.Mutex
	cert *tls.Certificate // nil: none yet
	leaf *x509.Certificate
	next time.Time // when to ask for another
}

// New takes up the certificate in the store, if there is one that is good.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, wake: make(chan struct{}, 1)}
	m.errors = register(cfg.Registry, cfg.Which, func() float64 { return m.Left().Seconds() })
	stored, err := cfg.Store.Load()
	if err != nil {
		// A damaged file is no reason not to start: another can be asked for.
		cfg.Log.Warn("the stored certificate cannot be read", "error", err)
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

// take makes a certificate the present one.
func (m *Manager) take(cert *tls.Certificate, leaf *x509.Certificate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	share := earliest + (latest-earliest)*rand.Float64()
	m.cert, m.leaf, m.next = cert, leaf, leaf.NotBefore.Add(time.Duration(share*float64(life)))
}

// Current is the present certificate; nil while there is none, or when its
// time is over.
func (m *Manager) Current() *tls.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaf == nil || time.Now().After(m.leaf.NotAfter) {
		return nil
	}
	return m.cert
}

// Left is how long the present certificate is good; 0 without one.
func (m *Manager) Left() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaf == nil {
		return 0
	}
	return max(0, time.Until(m.leaf.NotAfter))
}

// Poke has what is wanted looked at again.
func (m *Manager) Poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run asks for the first certificate and for each next one in time, until ctx
// ends.
func (m *Manager) Run(ctx context.Context) error {
	retry := firstRetry
	for ctx.Err() == nil {
		wait, due := m.due()
		if due {
			err := m.Obtain(ctx)
			switch {
			case err == nil:
				retry = firstRetry
				continue
			case ctx.Err() != nil:
				return nil
			}
			m.errors.Inc()
			m.cfg.Log.Warn("no new certificate", "name", m.cfg.Store.Name, "left", m.Left().Round(time.Second), "retry", retry, "error", err)
			wait = retry + time.Duration(rand.Int64N(int64(retry/10)))
			retry = min(2*retry, lastRetry)
		}
		m.sleep(ctx, wait, due)
	}
	return nil
}

// due says whether another certificate is wanted now, or when to look again.
func (m *Manager) due() (wait time.Duration, due bool) {
	ask := m.cfg.Ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ask == nil:
		return time.Hour, false // what is not known yet comes with a poke
	case m.leaf == nil || !csr.Fits(m.leaf, &ask.Template) || m.cfg.Store.renewalAsked():
		return 0, true
	}
	wait = time.Until(m.next)
	return wait, wait <= 0
}

// sleep waits; a poke ends it unless an attempt has just failed.
func (m *Manager) sleep(ctx context.Context, d time.Duration, failed bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	wake := m.wake
	if failed {
		wake = nil
	}
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Obtain asks for a certificate once, waits for it, and makes it the present
// one.
func (m *Manager) Obtain(ctx context.Context) error {
	ask := m.cfg.Ask()
	if ask == nil {
		return errors.New("it is not known yet what to ask for")
	}
	key, err := m.cfg.Store.Key()
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	text, err := csr.Obtain(wait, m.cfg.Client(), *ask, key)
	if errors.Is(err, csr.ErrRefused) {
		err = errors.Join(err, m.cfg.Store.DropKey()) // the next request is another one
	}
	if err != nil {
		return err
	}
	cert, err := m.cfg.Store.Save(text, key, time.Now())
	if cert == nil {
		return fmt.Errorf("store the certificate: %w", err)
	}
	if err != nil {
		m.cfg.Log.Warn("old certificates are left behind", "name", m.cfg.Store.Name, "error", err)
	}
	leaf := leafOf(cert)
	m.take(cert, leaf)
	m.cfg.Log.Info("new certificate", "name", m.cfg.Store.Name, "subject", leaf.Subject.CommonName, "until", leaf.NotAfter)
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
	return nil
}
