package encryption

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/backoff"
)

// Config configures a Keyring. Log is required if File is set.
type Config struct {
	File     string // an EncryptionConfiguration; "": nothing is encrypted
	Reload   bool   // reload the file when it changes
	Log      *slog.Logger
	Now      func() time.Time      // default time.Now
	Registry prometheus.Registerer // may be nil
	Identity string                // identifies this API server in metrics
}

const (
	reloadEvery = 10 * time.Second
	// healthTimeout is the time in which the plugins of a new configuration must
	// become healthy.
	healthTimeout = 10 * time.Second
)

// Keyring holds the providers in use. Open creates it and Run keeps it up to date.
// Its methods are safe for concurrent use.
type Keyring struct {
	cfg     Config
	metrics *metrics
	current atomic.Pointer[keys]
}

// keys holds the providers of one version of the file.
type keys struct {
	rules   *rules
	plugins []*plugin
	sum     string // hash of the file
}

// Open reads the configuration and requests the status of its plugins once. A
// plugin that does not answer is not an error, because it may start later than the
// API server.
func Open(ctx context.Context, cfg Config) (*Keyring, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Keyring{cfg: cfg, metrics: newMetrics(cfg.Registry, cfg.Identity)}
	if cfg.File == "" {
		r, err := newRules(&Configuration{}, k.metrics, nil)
		k.current.Store(&keys{rules: r})
		return k, err
	}
	data, err := os.ReadFile(cfg.File)
	if err != nil {
		return nil, err
	}
	next, err := k.load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.File, err)
	}
	next.check(ctx)
	k.current.Store(next)
	k.metrics.loaded(next.sum)
	return k, nil
}

func (k *Keyring) rules() *rules { return k.current.Load().rules }

func sumOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// load creates the providers of a configuration.
func (k *Keyring) load(data []byte) (*keys, error) {
	c, err := Parse(data)
	if err != nil {
		return nil, err
	}
	out := &keys{sum: sumOf(data)}
	out.rules, err = newRules(c, k.metrics, func(c *KMSConfiguration) (provider, error) {
		p, err := newPlugin(c, &k.cfg, k.metrics)
		if err != nil {
			return nil, err
		}
		out.plugins = append(out.plugins, p)
		return p, nil
	})
	if err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

// check requests the status of all plugins concurrently and waits for the results.
func (k *keys) check(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range k.plugins {
		all.Go(func() { p.check(ctx) })
	}
	all.Wait()
}

func (k *keys) healthy() error {
	var errs []error
	for _, p := range k.plugins {
		errs = append(errs, p.healthy())
	}
	return errors.Join(errs...)
}

// run polls the plugins until ctx ends, and then closes them.
func (k *keys) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range k.plugins {
		all.Go(func() { p.run(ctx) })
	}
	all.Wait()
}

func (k *keys) close() {
	for _, p := range k.plugins {
		p.close()
	}
}

// grace returns how long calls that use these keys may still run after other keys
// have replaced them.
func (k *keys) grace() time.Duration {
	var sum time.Duration
	for _, p := range k.plugins {
		sum += 2 * p.timeout
	}
	return sum
}

// Healthy returns nil if every KMS plugin was healthy at its last status request.
func (k *Keyring) Healthy() error { return k.current.Load().healthy() }

// Run polls the plugins and, if Config.Reload is set, the file, until ctx ends. It
// returns the error of ctx. Without Run, seeds of KMS plugins expire.
func (k *Keyring) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	end := start(ctx, &all, k.current.Load())
	if !k.cfg.Reload || k.cfg.File == "" {
		<-ctx.Done()
		end()
		return ctx.Err()
	}
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			end()
			return ctx.Err()
		case <-tick.C:
		}
		next, err := k.changed(ctx)
		if err != nil && ctx.Err() == nil {
			k.metrics.reloaded(err)
			k.cfg.Log.Error("reload encryption configuration failed; the previous one stays in use", "file", k.cfg.File, "err", err)
		}
		if next == nil {
			continue
		}
		old, endOld := k.current.Swap(next), end
		end = start(ctx, &all, next)
		all.Go(func() { endAfter(ctx, old.grace(), endOld) })
		k.metrics.reloaded(nil)
		k.metrics.loaded(next.sum)
		k.cfg.Log.Info("encryption configuration reloaded", "file", k.cfg.File, "hash", next.sum)
	}
}

// start polls the plugins of one configuration until end is called.
func start(ctx context.Context, all *sync.WaitGroup, of *keys) (end func()) {
	life, end := context.WithCancel(ctx)
	all.Go(func() { of.run(life) })
	return end
}

// endAfter calls end after the grace period, so that calls in flight can finish.
func endAfter(ctx context.Context, grace time.Duration, end func()) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	end()
}

// changed returns the keys of the file if it has changed and its plugins become
// healthy in time, or nil if it has not changed.
func (k *Keyring) changed(ctx context.Context) (*keys, error) {
	data, err := os.ReadFile(k.cfg.File)
	if err != nil {
		return nil, err
	}
	if sumOf(data) == k.current.Load().sum {
		return nil, nil
	}
	next, err := k.load(data)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(healthTimeout, next.grace()))
	defer cancel()
	for next.check(ctx); next.healthy() != nil; next.check(ctx) {
		if backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			next.close()
			return nil, fmt.Errorf("its plugins are not healthy: %w", next.healthy())
		}
	}
	return next, nil
}
