package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// Writer creates one object after another, and retries what was not acknowledged, like a client
// that has all servers and short timeouts. It is safe for concurrent use.
type Writer struct {
	mu    sync.Mutex
	acked []Written
	now   any           // what is going on now
	last  time.Time     // of the last acknowledgement
	worst time.Duration // longest time between two
}

// Written is an acknowledged write, and what was going on at the time.
type Written struct {
	Name   string
	During any
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) {
	w.Reset()
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("written-%d", n)
		for ctx.Err() == nil && !w.write(ctx, maps, name) {
			Pause(ctx, 50*time.Millisecond)
		}
		Pause(ctx, 20*time.Millisecond)
	}
}

func (w *Writer) write(ctx context.Context, maps client.Resource[*corev1.ConfigMap], name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"by": "writer"}}})
	if err != nil && !apierrors.IsAlreadyExists(err) { // an attempt before may have been stored
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.acked, w.worst, w.last = append(w.acked, Written{name, w.now}), max(w.worst, now.Sub(w.last)), now
	return true
}

// Begin sets what is going on from now on, and resets the outage.
func (w *Writer) Begin(what any) {
	w.mu.Lock()
	w.now = what
	w.mu.Unlock()
	w.Reset()
}

// Reset resets the outage, at the start of a fault.
func (w *Writer) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.worst = time.Now(), 0
}

// Outage returns the longest time since then without an acknowledgement.
func (w *Writer) Outage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.worst, time.Since(w.last))
}

// Acked returns all acknowledged writes.
func (w *Writer) Acked() []Written {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acked)
}

// Missing returns the acknowledged writes whose objects do not exist.
func (w *Writer) Missing(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) (missing []Written, err error) {
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "by=writer"})
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, m := range list.Items {
		have[m.Name] = true
	}
	for _, write := range w.Acked() {
		if !have[write.Name] {
			missing = append(missing, write)
		}
	}
	return missing, nil
}

// Load sends requests to a Service, each on a new connection. It is safe for concurrent use.
type Load struct {
	mu       sync.Mutex
	requests int
	slowest  time.Duration
	failed   []error
	last     time.Time     // of the last response
	silent   time.Duration // the longest time between two responses
}

// Reset resets the silence, at the start of a fault.
func (l *Load) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.silent = time.Now(), 0
}

// Silence returns the longest time since then without a response.
func (l *Load) Silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.silent, time.Since(l.last))
}

// Run sends requests until ctx ends.
func (l *Load) Run(ctx context.Context, url string) {
	l.Reset()
	for ctx.Err() == nil {
		begin := time.Now()
		err := Ask(ctx, url)
		if ctx.Err() != nil {
			return // the end, not a failure
		}
		l.mu.Lock()
		l.requests, l.slowest = l.requests+1, max(l.slowest, time.Since(begin))
		if err != nil {
			l.failed = append(l.failed, fmt.Errorf("%s: %w", begin.Format(time.TimeOnly), err))
		} else {
			l.last, l.silent = time.Now(), max(l.silent, time.Since(l.last))
		}
		l.mu.Unlock()
		Pause(ctx, 20*time.Millisecond)
	}
}

// Counts returns the number of requests so far, and how many of them failed.
func (l *Load) Counts() (requests, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, len(l.failed)
}

// Result returns the number of requests, the slowest one, and the failures.
func (l *Load) Result() (requests int, slowest time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, l.slowest, errors.Join(l.failed...)
}

// Ask sends one request on a new connection. It returns an error after 5 s.
func Ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// Pause blocks for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
