package workloads

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// ledger watches the pods of a selector and calls check after each change with all of them.
// It is safe for concurrent use.
type ledger struct {
	check func(map[types.UID]*corev1.Pod) error

	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod
	changes int
	broken  error // the first thing that did not hold
}

// keep starts a ledger, which ends with the test. The test fails if its check ever has.
func keep(t *testing.T, pods client.Resource[*corev1.Pod], selector string, check func(map[types.UID]*corev1.Pod) error) *ledger {
	t.Helper()
	l := &ledger{check: check, pods: map[types.UID]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		l.pods[pod.UID] = pod
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.run(ctx, pods, metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.ResourceVersion}); ctx.Err() == nil {
			l.fail(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		l.holds(t)
	})
	return l
}

// run watches until ctx ends, or a watch does with an error.
func (l *ledger) run(ctx context.Context, pods client.Resource[*corev1.Pod], from metav1.ListOptions) error {
	for {
		w, err := pods.Watch(ctx, from)
		if err != nil {
			return fmt.Errorf("watch the pods: %w", err)
		}
		for ctx.Err() == nil {
			event, err := w.Next()
			if err != nil {
				break // the server ends watches after some time; the next one continues
			}
			from.ResourceVersion = event.Object.ResourceVersion
			l.enter(event)
		}
		w.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (l *ledger) enter(event client.Event[*corev1.Pod]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	if event.Type == watch.Deleted {
		delete(l.pods, event.Object.UID)
	} else {
		l.pods[event.Object.UID] = event.Object
	}
	if err := l.check(l.pods); err != nil && l.broken == nil {
		l.broken = fmt.Errorf("after %s of %s: %w", event.Type, event.Object.Name, err)
	}
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// holds reports what did not hold.
func (l *ledger) holds(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		t.Error(l.broken)
	}
	t.Logf("%d changes of pods were checked", l.changes)
}

// active returns whether a pod is neither finished nor being deleted.
func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && unfinished(pod)
}

func unfinished(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// healthy returns whether a pod counts for a disruption budget.
func healthy(pod *corev1.Pod) bool { return active(pod) && docked.IsReady(pod) }

// count returns how many of the pods are so.
func count(pods map[types.UID]*corev1.Pod, so func(*corev1.Pod) bool) (n int) {
	for _, pod := range pods {
		if so(pod) {
			n++
		}
	}
	return n
}
