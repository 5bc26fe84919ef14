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

// Writer writes one object after the other, and repeats what was not
// acknowledged: as a client that knows all servers and has no time to lose.
type Writer struct {
	mu    sync.Mutex
	acked []Written
	now   any           // what is going on
	last  time.Time     // of the last acknowledgement
	worst time.Duration // between two
}

// Written is a write that was acknowledged, and during what.
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

// Begin tells it what is going on from now on, and forgets how long it had to
// wait before.
func (w *Writer) Begin(what any) {
	w.mu.Lock()
	w.now = what
	w.mu.Unlock()
	w.Reset()
}

// Reset forgets how long it had to wait, at the beginning of a fault.
func (w *Writer) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.worst = time.Now(), 0
}

// Outage is the longest time since then in which nothing was acknowledged.
func (w *Writer) Outage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.worst, time.Since(w.last))
}

// Acked are all that were acknowledged.
func (w *Writer) Acked() []Written {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acked)
}

// Missing are those of them that are not there.
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

// Load asks a Service, each time on a new connection.
type Load struct {
	mu       sync.Mutex
	requests int
	slowest  time.Duration
	failed   []error
	last     time.Time     // of the last answer
	silent   time.Duration // the longest time between two answers
}

// Reset forgets how long nobody answered, at the beginning of a fault.
func (l *Load) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.silent = time.Now(), 0
}

// Silence is the longest time since then in which nobody answered.
func (l *Load) Silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.silent, time.Since(l.last))
}

// Run asks until ctx ends.
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

// Counts are the requests so far, and those of them that failed.
func (l *Load) Counts() (requests, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, len(l.failed)
}

// Result is how many requests there were, the slowest, and what failed.
func (l *Load) Result() (requests int, slowest time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, l.slowest, errors.Join(l.failed...)
}

// Ask asks once, on a new connection.
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

// Pause returns after a while, or when ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
