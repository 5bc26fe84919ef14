package loop

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Result is when to reconcile the key again without a change: never, or after a time. It
// is ignored if the reconcile failed.
type Result struct{ After time.Duration }

// Done is the Result of a reconcile that waits only for changes.
var Done = Result{}

// After requests another reconcile after d.
func After(d time.Duration) Result { return Result{After: max(d, time.Millisecond)} }

// Reconcile brings one key to its desired state. It is called concurrently for different
// keys, never concurrently for the same key. An error means a retry with back-off.
type Reconcile func(ctx context.Context, key Key) (Result, error)

// Syncer is what a loop waits for before it starts: an informer.
type Syncer interface {
	WaitSynced(ctx context.Context) error
}

// Config configures a loop.
type Config struct {
	Name      string // in logs and metrics
	Workers   int    // default 5
	Reconcile Reconcile
	Synced    []Syncer // informers to wait for before the first reconcile

	// Pace is the minimum time between two starts of a key: the first of many changes
	// is handled at once and the rest together. Default 0.
	Pace time.Duration

	MinBackoff time.Duration // after the first failure; default 5 ms, doubled each time
	MaxBackoff time.Duration // default 1 min: a change wakes a key sooner anyway
	StaleLimit time.Duration // maximum wait for a write to appear in the cache; default 5 min

	Log     *slog.Logger
	Metrics *Metrics
}

// Loop reconciles keys. All methods except Run are safe for concurrent use at any time.
type Loop struct {
	cfg     Config
	queue   *queue
	guard   *guard
	metrics *series
}

// New returns a loop. Run starts it.
func New(cfg Config) *Loop {
	if cfg.Workers <= 0 {
		cfg.Workers = 5
	}
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = 5 * time.Millisecond
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = time.Minute
	}
	if cfg.StaleLimit <= 0 {
		cfg.StaleLimit = 5 * time.Minute
	}
	cfg.Log = cfg.Log.With("controller", cfg.Name)
	m := cfg.Metrics.of(cfg.Name)
	return &Loop{cfg: cfg, queue: newQueue(cfg.Pace, m), guard: newGuard(), metrics: m}
}

// Wake enqueues the keys.
func (l *Loop) Wake(keys ...Key) {
	for _, k := range keys {
		l.queue.add(k)
	}
}

// WakeAfter enqueues the key after d; a sooner wake-up takes precedence.
func (l *Loop) WakeAfter(key Key, d time.Duration) { l.queue.addAfter(key, d) }

// Wrote records that key's reconcile wrote an object of view, now at resourceVersion: the
// key is not reconciled again until view has reached it.
func (l *Loop) Wrote(key Key, view View, resourceVersion string) {
	l.guard.wrote(key, view, resourceVersion)
}

// Wait is Wrote for a write without a resourceVersion (a delete): the key is not
// reconciled again until seen, which reads from a view, returns true.
func (l *Loop) Wait(key Key, seen func() bool) { l.guard.wait(key, seen) }

// Run waits for the informers, then reconciles until ctx ends. It leaves no goroutine
// behind. It returns the error of ctx.
func (l *Loop) Run(ctx context.Context) error {
	for _, s := range l.cfg.Synced {
		if err := s.WaitSynced(ctx); err != nil {
			return fmt.Errorf("%s: wait for the first list: %w", l.cfg.Name, err)
		}
	}
	var wg sync.WaitGroup
	for range l.cfg.Workers {
		wg.Go(func() { l.work(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

func (l *Loop) work(ctx context.Context) {
	for {
		it, ok := l.queue.take(ctx)
		if !ok {
			return
		}
		fails, after := l.step(ctx, it)
		l.queue.done(it, fails, after)
	}
}

// step reconciles one key, unless a view lacks the key's last write. It returns the number
// of consecutive failures and when to reconcile the key again.
func (l *Loop) step(ctx context.Context, it *item) (fails int, after time.Duration) {
	log := l.cfg.Log.With("key", it.key.String())
	again, stale, gaveUp := l.guard.stale(it.key, l.cfg.StaleLimit)
	if stale {
		l.queue.unpaced(it)
		return it.fails, again
	}
	if gaveUp {
		log.Warn("informer does not show the controller's own write; continuing without it", "waited", l.cfg.StaleLimit)
	}
	end := l.metrics.runs.begin()
	result, err := l.reconcile(ctx, it.key)
	l.metrics.worked.Observe(end().Seconds())
	if err == nil {
		return 0, result.After
	}
	l.metrics.retries.Inc()
	after = l.backoff(it.fails)
	if ctx.Err() == nil { // errors during shutdown are not worth logging
		level := slog.LevelWarn
		if apierrors.IsConflict(err) {
			level = slog.LevelDebug
		}
		log.Log(ctx, level, "reconcile failed", "err", err, "again", after)
	}
	return it.fails + 1, after
}

// reconcile turns a panic into an error: an object that makes the controller panic must
// not stop the work on all others.
func (l *Loop) reconcile(ctx context.Context, key Key) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l.cfg.Reconcile(ctx, key)
}

func (l *Loop) backoff(fails int) time.Duration {
	if fails > 30 {
		return l.cfg.MaxBackoff
	}
	return min(l.cfg.MinBackoff<<fails, l.cfg.MaxBackoff)
}
