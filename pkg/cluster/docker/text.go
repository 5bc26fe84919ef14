package docker

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
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

// steps passes on the lines of what it gets that tell of steps, and tells each
// to those who wait. The rest is for operators: a join command, with its token,
// among it.
type steps struct {
	to   io.Writer
	tell func(string)
	part []byte
}

var stepLine = regexp.MustCompile(` \d+\.\d\ds\b`)

func (w *steps) Write(p []byte) (int, error) {
	w.part = append(w.part, p...)
	for {
		line, rest, whole := bytes.Cut(w.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		w.part = rest
		if !stepLine.Match(line) {
			continue
		}
		w.tell(strings.TrimSpace(string(line)))
		if _, err := fmt.Fprintf(w.to, "%s\n", line); err != nil {
			return 0, err
		}
	}
}
