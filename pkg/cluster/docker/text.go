package docker

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// pairs writes a map as flags take it, in a fixed order.
func pairs(m map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+"="+m[key])
	}
	return strings.Join(out, ",")
}

func quantities(m map[string]resource.Quantity) string {
	text := map[string]string{}
	for key, q := range m {
		text[key] = q.String()
	}
	return pairs(text)
}

// indent puts space before each line, which it passes on whole.
type indent struct {
	mu   sync.Mutex
	to   io.Writer
	part []byte
}

func newIndent(to io.Writer) *indent { return &indent{to: to} }

func (w *indent) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part = append(w.part, p...)
	for {
		line, rest, whole := bytes.Cut(w.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if _, err := io.WriteString(w.to, "       "+string(line)+"\n"); err != nil {
			return 0, err
		}
		w.part = rest
	}
}

// lastLine passes on what it gets and tells each line, for those who wait.
type lastLine struct {
	to   io.Writer
	tell func(string)
}

func (w *lastLine) Write(p []byte) (int, error) {
	lines := strings.Split(strings.TrimRight(string(p), "\n"), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		w.tell(last)
	}
	return w.to.Write(p)
}
