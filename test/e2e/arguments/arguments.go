// Package arguments records the command lines of all processes of this host, including those
// in containers. All users of the host can read them, so they must not contain secrets.
package arguments

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// often is short compared with the life of a process that waits for a cluster.
const often = 50 * time.Millisecond

// Watch records command lines.
type Watch struct {
	stop, done chan struct{}
	once       sync.Once
	seen       map[string]bool
	looks      atomic.Int64
}

// Start starts recording until With is called.
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

// look reads the command lines of all processes each time, because exec changes them. It
// skips processes that have ended.
func (w *Watch) look() {
	defer w.looks.Add(1)
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
			w.seen[strings.ReplaceAll(strings.TrimRight(string(data), "\x00"), "\x00", " ")] = true
		}
	}
}

// With stops recording and returns the recorded commands that contain a text, with spaces
// between the words.
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
