package nodelogs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"time"
)

// timeout limits how long a query takes.
const timeout = 30 * time.Second

// Handler answers queries.
type Handler struct {
	// Journal runs journalctl and writes its output to w. It blocks until journalctl
	// exits or ctx ends.
	Journal func(ctx context.Context, args []string, w io.Writer) error
	Files   fs.FS // of /var/log
	Now     func() time.Time
}

// Journalctl is the Journal of the machine.
func Journalctl(ctx context.Context, args []string, w io.Writer) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	var problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("journalctl: %w: %s", err, bytes.TrimSpace(problems.Bytes()))
	}
	return nil
}

// ServeHTTP writes the entries that the request selects. Errors after the first entry
// end the response.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := Parse(r.URL.Query(), h.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotAcceptable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	out := &started{w: w}
	err = h.write(ctx, q, out)
	switch {
	case err == nil || out.begun:
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// started records whether the response has begun.
type started struct {
	w     http.ResponseWriter
	begun bool
}

func (s *started) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	return s.w.Write(p)
}

func (h *Handler) write(ctx context.Context, q *Query, w io.Writer) error {
	if q.File != "" {
		return h.file(w, q.File)
	}
	has, err := h.inJournal(ctx, q)
	if err != nil {
		return err
	}
	if has {
		return h.Journal(ctx, q.journalctl(), w)
	}
	if len(q.Services) > 1 || q.selects() {
		return fmt.Errorf("the journal has no entries of %q: %w", q.Services, fs.ErrNotExist)
	}
	name := q.Services[0]
	for _, path := range []string{name, name + ".log", name + "/" + name + ".log"} {
		if st, err := fs.Stat(h.Files, path); err == nil && st.Mode().IsRegular() {
			return h.file(w, path)
		}
	}
	return fmt.Errorf("neither the journal nor /var/log has logs of %s: %w", name, fs.ErrNotExist)
}

// inJournal reports whether the journal has an entry of one of the services.
func (h *Handler) inJournal(ctx context.Context, q *Query) (bool, error) {
	var out bytes.Buffer
	probe := Query{Services: q.Services, Tail: 1}
	err := h.Journal(ctx, append(probe.journalctl(), "--quiet"), &out)
	if errors.Is(err, exec.ErrNotFound) {
		return false, nil // a machine without a journal
	}
	return out.Len() > 0, err
}

func (h *Handler) file(w io.Writer, path string) error {
	f, err := h.Files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file: %w", path, fs.ErrNotExist)
	}
	_, err = io.Copy(w, f)
	return err
}
