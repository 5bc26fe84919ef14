// Package arguments watches what the processes of this host have among their
// arguments, those in containers included: everybody on the host can read it,
// so that no secret may be there.
package arguments

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// often is short beside the life of a process that waits for a cluster.
const often = 50 * time.Millisecond

// Watch is what has been seen.
type Watch struct {
	stop, done chan struct{}
	once       sync.Once
	seen       map[string]bool
	looks      atomic.Int64
}

// Start watches until With is called.
func Start() *Watch {
	w := &Watch{stop: make(chan struct{}), done: make(chan struct{}), seen: map[string]bool{}}
	go w.run()
	return w
}

func (w *Watch) run() {
	defer close(w.done)
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			w.look()
			return
		case <-tick.C:
			w.look()
		}
	}
}

// look reads all of them each time: a process gets others when it becomes
// another program. Those that end meanwhile are passed over.
func (w *Watch) look() {
	defer w.looks.Add(1)
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
			w.seen[strings.ReplaceAll(strings.TrimRight(string(data), "\x00"), "\x00", " ")] = true
		}
	}
}

// With ends the watch and returns the commands, words with a space between,
// that hold a text.
func (w *Watch) With(text string) (commands []string) {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	for command := range w.seen {
		if strings.Contains(command, text) {
			commands = append(commands, command)
		}
	}
	return commands
}
