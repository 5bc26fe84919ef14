// Package progress prints the steps of a command, what each waits for and how
// long it took.
package progress

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// printPeriod is the interval at which a step prints what it waits for.
const printPeriod = 2 * time.Second

// Steps prints a line for each step to Out. Create it with Start. Only one step
// may run at a time.
type Steps struct {
	Out   io.Writer
	begin time.Time
}

// Start starts the clock for Total. A nil out discards the output.
func Start(out io.Writer) *Steps {
	if out == nil {
		out = io.Discard
	}
	return &Steps{Out: out, begin: time.Now()}
}

// Do runs a step, and prints whether it succeeded and how long it took. The
// step may call waiting, from any goroutine, with what it waits for; Do prints
// the last such text every two seconds. The returned error is the step's,
// prefixed with name.
func (s *Steps) Do(ctx context.Context, name string, step func(ctx context.Context, waiting func(string)) error) error {
	begin := time.Now()
	note := &note{}
	done := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() { s.narrate(name, begin, note, done) })
	err := step(ctx, note.set)
	close(done)
	shown.Wait()

	took := time.Since(begin).Seconds()
	if err != nil {
		fmt.Fprintf(s.Out, " ✗ %-34s %6.2fs\n", name, took)
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(s.Out, " ✓ %-34s %6.2fs\n", name, took)
	return nil
}

// Total prints what and the time since Start.
func (s *Steps) Total(what string) {
	fmt.Fprintf(s.Out, "   %-34s %6.2fs\n", what, time.Since(s.begin).Seconds())
}

// narrate prints changes of note every patience until done is closed.
func (s *Steps) narrate(name string, begin time.Time, note *note, done <-chan struct{}) {
	tick := time.NewTicker(printPeriod)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			what := note.get()
			if what == "" || what == last {
				continue
			}
			last = what
			fmt.Fprintf(s.Out, " … %-34s %6.2fs  %s\n", name, time.Since(begin).Seconds(), what)
		}
	}
}

// note is the text of what a step waits for. It is safe for concurrent use.
type note struct {
	mu   sync.Mutex
	text string
}

func (n *note) set(text string) { n.mu.Lock(); n.text = text; n.mu.Unlock() }
func (n *note) get() string     { n.mu.Lock(); defer n.mu.Unlock(); return n.text }
