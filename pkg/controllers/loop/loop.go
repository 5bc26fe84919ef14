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

// Result says when to reconcile the key again without being woken: never, or
// after a while. It is looked at only when the reconcile succeeded.
type Result struct{ After time.Duration }

// Done is the Result of a reconcile that waits for nothing but a change.
var Done = Result{}

// After asks for another reconcile in d.
func After(d time.Duration) Result { return Result{After: max(d, time.Millisecond)} }

// Reconcile makes one key's state what it should be. It is called for several
// keys at once, never twice for one.
type Reconcile func(ctx context.Context, key Key) (Result, error)

// Syncer is what a loop waits for before it starts: an informer.
type Syncer interface {
	WaitSynced(ctx context.Context) error
}

// Config is what a loop needs.
type Config struct {
	Name      string // in logs and metrics
	Workers   int    // default 5
	Reconcile Reconcile
	Synced    []Syncer // the informers that must be complete first

	// Pace is the least time between two starts of one key: the first of many
	// changes is handled at once and the rest together. Default 0.
	Pace time.Duration

	MinBackoff time.Duration // after the first failure; default 5 ms, doubled each time
	MaxBackoff time.Duration // default 1 min: a change wakes a key sooner anyway
	StaleLimit time.Duration // how long to wait for our own write to show; default 5 min

	Log     *slog.Logger
	Metrics *Metrics
}

// Loop reconciles keys. Wake and the guard may be called by anyone at any time.
type Loop struct {
	cfg     Config
	queue   *queue
	guard   *guard
	metrics *series

	mu    sync.Mutex
	began map[Key]time.Time // reconciles under way
}

// New builds a loop; Run starts it.
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
	return &Loop{cfg: cfg, queue: newQueue(cfg.Pace, m), guard: newGuard(), metrics: m, began: map[Key]time.Time{}}
}

// Wake has the keys reconciled as soon as a worker is free.
func (l *Loop) Wake(keys ...Key) {
	for _, k := range keys {
		l.queue.add(k)
	}
}

// WakeAfter has the key reconciled in d, or sooner.
func (l *Loop) WakeAfter(key Key, d time.Duration) { l.queue.addAfter(key, d) }

// Wrote tells that key's reconcile wrote an object, now at resourceVersion, of
// those that view shows: the key rests until view has come that far.
func (l *Loop) Wrote(key Key, view View, resourceVersion string) {
	l.guard.wrote(key, view, resourceVersion)
}

// Wait is Wrote for a write that has no resourceVersion to tell (a delete):
// the key rests until seen, which reads from a view, says so.
func (l *Loop) Wait(key Key, seen func() bool) { l.guard.wait(key, seen) }

// Run waits for the informers, then reconciles until ctx ends. It leaves no
// goroutine behind. The error is the context's.
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

// step reconciles one key, unless the views are behind its own last write. It
// says how often the key has failed in a row and when to take it again.
func (l *Loop) step(ctx context.Context, it *item) (fails int, after time.Duration) {
	log := l.cfg.Log.With("key", it.key.String())
	again, stale, gaveUp := l.guard.stale(it.key, l.cfg.StaleLimit)
	if stale {
		l.queue.unpaced(it)
		return it.fails, again
	}
	if gaveUp {
		log.Warn("own write does not show; going on without it", "waited", l.cfg.StaleLimit)
	}
	began := l.begin(it.key)
	result, err := l.reconcile(ctx, it.key)
	l.end(it.key, began)
	if err == nil {
		return 0, result.After
	}
	l.metrics.retries.Inc()
	after = l.backoff(it.fails)
	if ctx.Err() == nil { // at the end of the process failures are no news
		level := slog.LevelWarn
		if apierrors.IsConflict(err) {
			level = slog.LevelDebug
		}
		log.Log(ctx, level, "reconcile failed", "err", err, "again", after)
	}
	return it.fails + 1, after
}

// reconcile turns a panic into an error: one object that a controller cannot
// bear must not stop the work on all others.
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

func (l *Loop) begin(key Key) time.Time {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began[key] = now
	l.showUnderWay(now)
	return now
}

func (l *Loop) end(key Key, began time.Time) {
	now := time.Now()
	l.metrics.worked.Observe(now.Sub(began).Seconds())
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.began, key)
	l.showUnderWay(now)
}
