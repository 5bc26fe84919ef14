// Package progress shows a person which step runs, what it waits for and how
// long each took.
package progress

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// patience is how long a step may be silent before it says what it waits for.
const patience = 2 * time.Second

// Steps prints one line a step to Out. The zero Out prints nothing.
type Steps struct {
	Out   io.Writer
	begin time.Time
}

// Start begins to count the total.
func Start(out io.Writer) *Steps {
	if out == nil {
		out = io.Discard
	}
	return &Steps{Out: out, begin: time.Now()}
}

// Do runs one step. The step tells what it waits for through waiting; that is
// shown when it takes longer than two seconds.
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

// Total prints the time since Start.
func (s *Steps) Total(what string) {
	fmt.Fprintf(s.Out, "   %-34s %6.2fs\n", what, time.Since(s.begin).Seconds())
}

func (s *Steps) narrate(name string, begin time.Time, note *note, done <-chan struct{}) {
	tick := time.NewTicker(patience)
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

type note struct {
	mu   sync.Mutex
	text string
}

func (n *note) set(text string) { n.mu.Lock(); n.text = text; n.mu.Unlock() }
func (n *note) get() string     { n.mu.Lock(); defer n.mu.Unlock(); return n.text }
