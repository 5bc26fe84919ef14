package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
)

// Health collects the liveness and readiness checks of a daemon. The zero value is
// alive and ready. It is safe for concurrent use.
type Health struct {
	mu     sync.Mutex
	checks []check
}

type check struct {
	name  string
	run   func() error
	alive bool // counts for livez and healthz, too
}

// Add registers a readiness check. run must be quick and safe for concurrent use; nil
// means healthy.
func (h *Health) Add(name string, run func() error) { h.add(check{name: name, run: run}) }

// AddLive registers a liveness check, which counts for readiness, too. A daemon that
// fails it should be restarted.
func (h *Health) AddLive(name string, run func() error) { h.add(check{name, run, true}) }

func (h *Health) add(c check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, c)
}

// Ready returns the error of the first failed check, or nil.
func (h *Health) Ready() error { return firstFailure(h.list(false)) }

// Live returns the error of the first failed liveness check, or nil.
func (h *Health) Live() error { return firstFailure(h.list(true)) }

func firstFailure(checks []check) error {
	for _, c := range checks {
		if err := c.run(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (h *Health) list(aliveOnly bool) []check {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []check{{name: "ping", run: func() error { return nil }, alive: true}}
	for _, c := range h.checks {
		if c.alive || !aliveOnly {
			out = append(out, c)
		}
	}
	return out
}

// Handler serves /healthz, /livez and /readyz and, below each, a path for each check. It
// supports ?verbose and ?exclude=NAME, with the same texts as upstream's servers.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	for name, aliveOnly := range map[string]bool{"healthz": true, "livez": true, "readyz": false} {
		all := func(w http.ResponseWriter, r *http.Request) { serveChecks(w, r, name, h.list(aliveOnly)) }
		mux.HandleFunc("/"+name, all)
		mux.HandleFunc("/"+name+"/{check}", func(w http.ResponseWriter, r *http.Request) {
			serveCheck(w, r.PathValue("check"), h.list(aliveOnly))
		})
	}
	return mux
}

func serveChecks(w http.ResponseWriter, r *http.Request, name string, checks []check) {
	var lines bytes.Buffer
	var failed []string
	excluded := r.URL.Query()["exclude"]
	for _, c := range checks {
		if i := slices.Index(excluded, c.name); i >= 0 {
			excluded = slices.Delete(slices.Clone(excluded), i, i+1)
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.name)
		} else if err := c.run(); err != nil {
			failed = append(failed, c.name)
			// The error may reveal too much to anonymous clients: it is shown on the check's own path.
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.name)
		} else {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		}
	}
	if len(excluded) > 0 {
		sort.Strings(excluded)
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(excluded))
	}
	header(w)
	if len(failed) > 0 {
		http.Error(w, fmt.Sprintf("%s%s check failed", lines.String(), name), http.StatusInternalServerError)
		return
	}
	if _, verbose := r.URL.Query()["verbose"]; !verbose {
		fmt.Fprint(w, "ok")
		return
	}
	fmt.Fprintf(w, "%s%s check passed\n", lines.String(), name)
}

func serveCheck(w http.ResponseWriter, name string, checks []check) {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	header(w)
	if i < 0 {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if err := checks[i].run(); err != nil {
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

func header(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(out, ", ")
}
