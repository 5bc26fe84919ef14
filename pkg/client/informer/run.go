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

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// How an informer that lost its server comes back: soon, then ever more
// slowly, never all informers at once.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
	steady     = 5 * time.Second // a watch that lived so long ends the back-off

	minWatch = 5 * time.Minute // how long the server is asked to keep a watch; up to twice that
)

// errRelist says that the store can no longer be brought up to date by a watch.
var errRelist = errors.New("the server no longer has the changes since the last one seen")

// Run fills the store and keeps it up to date until ctx ends; then it returns
// nil. What breaks on the way is retried for ever, and logged.
func (i *Informer[T]) Run(ctx context.Context) error {
	r := runner[T]{Informer: i, jitter: i.opts.Jitter, wait: firstRetry, watchList: true}
	if r.jitter == nil {
		r.jitter = rand.Float64
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := r.step(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errRelist) {
			i.log.Debug("list again", "reason", err)
			r.revision = ""
		}
		if time.Since(began) >= steady {
			r.wait = firstRetry
		}
		if err == nil || (errors.Is(err, io.EOF) && time.Since(began) >= steady) {
			continue
		}
		r.pause(ctx, err)
	}
	return nil
}

// runner is the state of one Run: synced up to revision, or with none when the
// next step must list.
type runner[T scheme.Object] struct {
	*Informer[T]
	jitter    func() float64
	revision  string
	wait      time.Duration // before the next attempt
	failures  int
	watchList bool // the server has not said that it cannot do it
}

// step does one thing: a list, or a watch until it ends. With a watch-list it
// does both over one connection.
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

// watch follows the changes after r.revision.
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

// listByWatch asks for the present state as the first events of a watch
// (KEP-3157), up to the bookmark that ends it, and goes on with the changes.
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

// progress notes that the server answers and how far the store has come.
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
	t := time.NewTimer(time.Duration(float64(r.wait) * (0.5 + r.jitter()/2)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	r.wait = min(2*r.wait, lastRetry)
}
