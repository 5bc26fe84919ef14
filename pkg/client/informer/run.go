package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Back-off of reconnections: from firstRetry to lastRetry; jitter at most doubles a
// delay, so that informers do not reconnect all at once.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
	steady     = 5 * time.Second // a watch that lasted this long resets the back-off

	minWatch = 5 * time.Minute // minimum timeout requested for a watch; the maximum is twice that
)

// errRelist means that a watch can no longer bring the store up to date.
var errRelist = errors.New("the server no longer has the changes since the last one seen")

// Run fills the store and keeps it up to date until ctx ends; then it returns nil. It
// retries all errors without limit and logs them.
func (i *Informer[T]) Run(ctx context.Context) error {
	r := runner[T]{Informer: i, jitter: i.opts.Jitter, watchList: true}
	if r.jitter == nil {
		r.jitter = rand.Float64
	}
	r.retry = backoff.Backoff{Initial: firstRetry, Max: lastRetry, Jitter: 1, Rand: r.jitter}
	for ctx.Err() == nil {
		began := time.Now()
		err := r.step(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errRelist) {
			i.log.Debug("relist", "reason", err)
			r.revision = ""
		}
		if time.Since(began) >= steady {
			r.retry.Reset()
		}
		if err == nil || (errors.Is(err, io.EOF) && time.Since(began) >= steady) {
			continue
		}
		r.pause(ctx, err)
	}
	return nil
}

// runner is the state of one Run. The store is current up to revision; if revision is
// empty, the next step must list.
type runner[T scheme.Object] struct {
	*Informer[T]
	jitter    func() float64
	revision  string
	retry     backoff.Backoff
	failures  int
	watchList bool // false once the server has refused a watch-list
}

// step performs one list, or one watch until it ends. With a watch-list it does both
// over one connection.
func (r *runner[T]) step(ctx context.Context) error {
	if r.revision != "" {
		return r.watch(ctx)
	}
	if r.watchList {
		err := r.listByWatch(ctx)
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsMethodNotSupported(err) {
			return err
		}
		r.log.Debug("the server has no watch-list", "error", err)
		r.watchList = false
	}
	return r.list(ctx)
}

func (r *runner[T]) list(ctx context.Context) error {
	list, err := r.src.List(ctx, metav1.ListOptions{
		FieldSelector: r.opts.FieldSelector, LabelSelector: r.opts.LabelSelector,
	})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	r.replace(list.Items, list.ResourceVersion)
	r.progress(list.ResourceVersion)
	return nil
}

func (r *runner[T]) options() metav1.ListOptions {
	timeout := int64(minWatch.Seconds() * (1 + r.jitter()))
	return metav1.ListOptions{
		FieldSelector: r.opts.FieldSelector, LabelSelector: r.opts.LabelSelector,
		AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
	}
}

// watch applies the changes after r.revision until the watch ends.
func (r *runner[T]) watch(ctx context.Context) error {
	opts := r.options()
	opts.ResourceVersion = r.revision
	w, err := r.src.Watch(ctx, opts)
	if err != nil {
		return watchError(err)
	}
	defer w.Stop()
	return r.follow(w)
}

// listByWatch requests the current state as the initial events of a watch (KEP-3157),
// up to the bookmark that ends them, and then applies the changes.
func (r *runner[T]) listByWatch(ctx context.Context) error {
	yes := true
	opts := r.options()
	opts.SendInitialEvents = &yes
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	w, err := r.src.Watch(ctx, opts)
	if err != nil {
		return watchError(err)
	}
	defer w.Stop()
	items := map[key]T{}
	for {
		e, err := w.Next()
		if err != nil {
			return watchError(err)
		}
		switch e.Type {
		case watch.Added, watch.Modified:
			items[keyOf(e.Object)] = e.Object
		case watch.Deleted:
			delete(items, keyOf(e.Object))
		case watch.Bookmark:
			if e.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				continue
			}
			r.replace(inOrder(items), e.Object.GetResourceVersion())
			r.progress(e.Object.GetResourceVersion())
			return r.follow(w)
		}
	}
}

// follow applies events until the watch ends. It never returns nil.
func (r *runner[T]) follow(w *client.Watch[T]) error {
	for {
		e, err := w.Next()
		if err != nil {
			return watchError(err)
		}
		revision := e.Object.GetResourceVersion()
		switch e.Type {
		case watch.Added, watch.Modified:
			r.set(e.Object)
		case watch.Deleted:
			r.drop(keyOf(e.Object))
		}
		r.store.setRevision(revision)
		r.progress(revision)
	}
}

// progress records that the server answers, and the revision of the store.
func (r *runner[T]) progress(revision string) {
	if revision != "" {
		r.revision = revision
	}
	r.failures = 0
}

func watchError(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return fmt.Errorf("%w: %w", errRelist, err)
	}
	return err
}

func (r *runner[T]) pause(ctx context.Context, err error) {
	r.failures++
	if !errors.Is(err, io.EOF) && !errors.Is(err, errRelist) {
		level := r.log.Debug
		if r.failures == 3 {
			level = r.log.Warn
		}
		level("the watch broke; trying again", "error", err, "attempt", r.failures)
	}
	_ = r.retry.Wait(ctx) // the caller checks ctx
}
