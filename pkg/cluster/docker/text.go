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

// pairs formats a map as flags expect it, sorted by key.
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

// indent is an io.Writer that indents each complete line. It is safe for
// concurrent use.
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

// steps is an io.Writer for podium's output. It copies the lines that report a
// step to another writer and passes them to tell. It drops all other lines,
// which may contain a join command with its token.
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
