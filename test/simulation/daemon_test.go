package simulation

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// daemon is a process that is started again whenever it ends.
type daemon struct {
	name string
	run  func(ctx context.Context, l *life) error

	mu   sync.Mutex
	life *life
}

// life is a daemon from its start to its end.
type life struct {
	who  string
	ctx  context.Context
	kill context.CancelFunc

	mu     sync.Mutex
	killed bool
	last   []func() // what else ends with it, at once
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

// die is kill -9: from here on nothing the daemon does has an effect.
func (l *life) die() {
	l.mu.Lock()
	last := l.last
	l.killed, l.last = true, nil
	l.mu.Unlock()
	l.kill()
	for _, f := range last {
		f()
	}
}

// atDeath has f called when the life ends by force.
func (l *life) atDeath(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, f)
}

// patience is how long a killed daemon may take to leave no goroutine behind.
const patience = 2 * time.Minute

// keep runs a daemon until ctx ends.
func (w *world) keep(ctx context.Context, d *daemon) {
	for ctx.Err() == nil {
		l := &life{who: d.name}
		l.ctx, l.kill = context.WithCancel(ctx)
		d.mu.Lock()
		d.life = l
		d.mu.Unlock()
		stuck := make(chan struct{})
		context.AfterFunc(l.ctx, func() {
			select {
			case <-stuck:
			case <-time.After(patience):
				w.problem("%s has not ended %s after it was told to", d.name, patience)
			}
		})
		err := d.run(l.ctx, l)
		close(stuck)
		l.kill()
		if ctx.Err() != nil {
			return
		}
		wait := time.Second
		if l.dead() {
			wait = w.plan.outage(d.name)
		} else {
			w.plan.note("%s: ended by itself: %v", d.name, err)
			if w.plan.stopped() {
				w.problem("%s ended by itself without a fault: %v", d.name, err)
			}
		}
		w.rest(ctx, wait)
	}
}

// rest waits, but not longer than faults go on.
func (w *world) rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-w.calm:
	}
}

// crash kills a daemon; it comes back.
func (d *daemon) crash() {
	d.mu.Lock()
	l := d.life
	d.mu.Unlock()
	if l != nil {
		l.die()
	}
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}
