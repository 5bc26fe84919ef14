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
)

// Config says where the keys come from.
type Config struct {
	File     string // upstream's EncryptionConfiguration; empty: nothing is encrypted
	Reload   bool   // take up changes of the file
	Log      *slog.Logger
	Now      func() time.Time      // optional: time.Now
	Registry prometheus.Registerer // optional
	Identity string                // this server among several, for metrics
}

const (
	reloadEvery = 10 * time.Second
	// A plugin of a new configuration has so long to become healthy.
	healthPatience = 10 * time.Second
)

// Keyring is the providers in use. Open makes one, Run keeps it current.
type Keyring struct {
	cfg     Config
	metrics *metrics
	current atomic.Pointer[keys]
}

// keys is what one version of the file comes to.
type keys struct {
	rules   *rules
	plugins []*plugin
	sum     string // of the file
}

// Open reads the configuration and asks its plugins for the first time; one
// that does not answer is no error, since it may start later than we do.
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

// load makes the providers of a configuration.
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

// check asks all plugins for their status.
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

// run watches over the plugins until ctx ends.
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

// grace is how long calls may last that began before other keys took over.
func (k *keys) grace() time.Duration {
	var sum time.Duration
	for _, p := range k.plugins {
		sum += 2 * p.timeout
	}
	return sum
}

// Healthy is nil if every KMS plugin is.
func (k *Keyring) Healthy() error { return k.current.Load().healthy() }

// Run watches over the plugins and, if so configured, the file, until ctx ends.
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
			k.cfg.Log.Error("the encryption configuration cannot be taken up; the former one stays", "file", k.cfg.File, "err", err)
		}
		if next == nil {
			continue
		}
		old, endOld := k.current.Swap(next), end
		end = start(ctx, &all, next)
		all.Go(func() { endAfter(ctx, old.grace(), endOld) })
		k.metrics.reloaded(nil)
		k.metrics.loaded(next.sum)
		k.cfg.Log.Info("a new encryption configuration is in use", "file", k.cfg.File, "hash", next.sum)
	}
}

// start watches over the plugins of one configuration, until end is called.
func start(ctx context.Context, all *sync.WaitGroup, of *keys) (end func()) {
	life, end := context.WithCancel(ctx)
	all.Go(func() { of.run(life) })
	return end
}

// endAfter lets those finish who still work with what ends.
func endAfter(ctx context.Context, grace time.Duration, end func()) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	end()
}

// changed is what the file says if that is new, and if its plugins are healthy.
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
	ctx, cancel := context.WithTimeout(ctx, max(healthPatience, next.grace()))
	defer cancel()
	for next.check(ctx); next.healthy() != nil; next.check(ctx) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			next.close()
			return nil, fmt.Errorf("its plugins are not healthy: %w", next.healthy())
		}
	}
	return next, nil
}
