package simulation

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// daemon is a process that is restarted whenever it ends.
type daemon struct {
	name string
	run  func(ctx context.Context, l *life) error
	end  context.CancelFunc // ends it for good

	mu   sync.Mutex
	life *life
}

// life is one run of a daemon from its start to its end.
type life struct {
	who  string
	ctx  context.Context
	kill context.CancelFunc

	mu     sync.Mutex
	killed bool
	last   []func() // functions called when it is killed
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

// die simulates kill -9: from here on nothing that the daemon does has an effect.
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

// atDeath registers f to be called when the life is killed.
func (l *life) atDeath(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, f)
}

// patience is how long the goroutines of a killed daemon may take to end.
const patience = 2 * time.Minute

// keep runs a daemon, with restarts, until ctx ends.
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

// rest waits for d, but not after the faults have ended.
func (w *world) rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-w.calm:
	}
}

// crash kills a daemon; keep restarts it.
func (d *daemon) crash() {
	d.mu.Lock()
	l := d.life
	d.mu.Unlock()
	if l != nil {
		l.die()
	}
}

// retire kills a daemon for good.
func (d *daemon) retire() {
	d.crash()
	d.end()
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.began).Round(time.Millisecond)
	w.problems = append(w.problems, fmt.Sprintf("%12s  %s", at, fmt.Sprintf(format, args...)))
}
