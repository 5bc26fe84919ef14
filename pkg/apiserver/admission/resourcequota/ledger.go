package resourcequota

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/scheme"
)

// timeout is for writing the charges of one batch.
const timeout = 10 * time.Second

var quotas = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

// ledger writes charges into the status of quotas, one batch at a time for each
// namespace.
type ledger struct {
	objects admission.Objects

	mu      sync.Mutex
	waiting map[string][]*entry // by namespace; a namespace that is being written has a key
}

// entry is a charge that waits to be written.
type entry struct {
	*charge
	quotas []string     // names
	err    error        // a refusal; used by the writer of the batch only
	done   chan<- error // receives the outcome; has room for it
}

func newLedger(o admission.Objects) *ledger {
	return &ledger{objects: o, waiting: map[string][]*entry{}}
}

// enter blocks until the charge is written into the status of the named quotas, or is
// refused. In a dry run it only checks the charge.
func (l *ledger) enter(ctx context.Context, namespace string, c *charge, names []string) error {
	done := make(chan error, 1)
	l.mu.Lock()
	waiting, busy := l.waiting[namespace]
	l.waiting[namespace] = append(waiting, &entry{charge: c, quotas: names, done: done})
	l.mu.Unlock()
	if !busy {
		go l.work(namespace)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work writes batches of a namespace until no charge waits.
func (l *ledger) work(namespace string) {
	for {
		l.mu.Lock()
		batch := l.waiting[namespace]
		if len(batch) == 0 {
			delete(l.waiting, namespace)
			l.mu.Unlock()
			return
		}
		l.waiting[namespace] = nil
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), timeout) // not of one request: it writes for many
		l.write(ctx, namespace, batch)
		cancel()
		for _, e := range batch {
			e.done <- e.err
		}
	}
}

// write writes a batch. A charge that one of several quotas refuses must not stay in
// the others, so it first reads all of them. If another server uses up a quota between
// this and the writes, the controller corrects the others.
func (l *ledger) write(ctx context.Context, namespace string, batch []*entry) {
	byQuota := map[string][]*entry{}
	for _, e := range batch {
		for _, name := range e.quotas {
			byQuota[name] = append(byQuota[name], e)
		}
	}
	names := slices.Sorted(maps.Keys(byQuota))
	if len(names) > 1 {
		l.refuse(ctx, namespace, names, batch)
	}
	for _, name := range names {
		entries := slices.DeleteFunc(byQuota[name], func(e *entry) bool { return e.err != nil })
		if len(entries) > 0 {
			l.charge(ctx, namespace, name, entries)
		}
	}
}

// refuse sets the errors of the charges that exceed one of the quotas.
func (l *ledger) refuse(ctx context.Context, namespace string, names []string, batch []*entry) {
	present, used := map[string]*corev1.ResourceQuota{}, map[string]corev1.ResourceList{}
	for _, name := range names {
		if obj, err := l.objects.Get(ctx, quotas, namespace, name); err == nil { // charge reports an error
			q := obj.(*corev1.ResourceQuota)
			present[name], used[name] = q, orEmpty(q.Status.Used)
		}
	}
	for _, e := range batch {
		for _, name := range e.quotas {
			if q := present[name]; q != nil && e.err == nil {
				e.err = e.check(q, used[name])
			}
		}
		for _, name := range e.quotas {
			if q := present[name]; q != nil && e.err == nil && !e.attributes.DryRun {
				e.add(q, used[name])
			}
		}
	}
}

// charge adds the entries to the usage of one quota, as far as they do not exceed it,
// and sets the errors of the others.
func (l *ledger) charge(ctx context.Context, namespace, name string, entries []*entry) {
	_, err := l.objects.Update(ctx, quotas, namespace, name, func(obj scheme.Object) error {
		q := obj.(*corev1.ResourceQuota)
		q.Status.Used = orEmpty(q.Status.Used)
		for _, e := range entries { // each attempt decides again
			if e.err = e.check(q, q.Status.Used); e.err == nil && !e.attributes.DryRun {
				e.add(q, q.Status.Used)
			}
		}
		return nil
	})
	switch {
	case err == nil || apierrors.IsNotFound(err): // a quota that is gone limits nothing
		return
	case errors.Is(err, context.DeadlineExceeded):
		err = apierrors.NewInternalError(errors.New("resource quota evaluation timed out"))
	}
	for _, e := range entries {
		e.err = err
	}
}

func orEmpty(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return corev1.ResourceList{}
	}
	return list
}
