package ha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// writer writes one object after the other, and repeats what was not
// acknowledged: as a client that knows all servers and has no time to lose.
type writer struct {
	mu    sync.Mutex
	acked []string
	last  time.Time     // of the last acknowledgement
	worst time.Duration // between two
}

func (w *writer) run(ctx context.Context, maps client.Resource[*corev1.ConfigMap]) {
	w.reset()
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("written-%d", n)
		for ctx.Err() == nil && !w.write(ctx, maps, name) {
			pause(ctx, 50*time.Millisecond)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (w *writer) write(ctx context.Context, maps client.Resource[*corev1.ConfigMap], name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"by": "writer"}}})
	if err != nil && !apierrors.IsAlreadyExists(err) { // an attempt before may have been stored
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.acked, w.worst, w.last = append(w.acked, name), max(w.worst, now.Sub(w.last)), now
	return true
}

// reset forgets how long it had to wait, at the beginning of a fault.
func (w *writer) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.worst = time.Now(), 0
}

// outage is the longest time since then in which nothing was acknowledged.
func (w *writer) outage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.worst, time.Since(w.last))
}

func (w *writer) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.acked...)
}

// load asks a Service, each time on a new connection.
type load struct {
	mu       sync.Mutex
	requests int
	slowest  time.Duration
	failed   []error
}

func (l *load) run(ctx context.Context, url string) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := ask(ctx, url)
		if ctx.Err() != nil {
			return // the end, not a failure
		}
		l.mu.Lock()
		l.requests, l.slowest = l.requests+1, max(l.slowest, time.Since(begin))
		if err != nil {
			l.failed = append(l.failed, fmt.Errorf("%s: %w", begin.Format(time.TimeOnly), err))
		}
		l.mu.Unlock()
		pause(ctx, 20*time.Millisecond)
	}
}

// result is how many requests there were, the slowest, and what failed.
func (l *load) result() (requests int, slowest time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests, l.slowest, errors.Join(l.failed...)
}

func ask(ctx context.Context, url string) error {
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

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
