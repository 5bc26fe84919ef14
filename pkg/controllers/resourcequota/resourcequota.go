package resourcequota

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/quota"
)

const (
	// settling is how long usage must not have changed before it is lowered: an object
	// that was charged just now may not be stored yet.
	settling = time.Second
	// patience is how long charges that keep coming can delay this.
	patience = 10 * time.Second
	// perObject is the time that must pass after objects were read from the API before they
	// are read again, for each of them; at most patience.
	perObject = time.Millisecond
)

// Spec describes the controller. resync is the period in which the usage of every quota
// is computed again.
func Spec(workers int, resync time.Duration) controller.Spec {
	return controller.Spec{
		Name: "resourcequota-controller", Workers: workers,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, resync), nil },
	}
}

type reconciler struct {
	loop    *loop.Loop
	resync  time.Duration
	quotas  *informer.Informer[*corev1.ResourceQuota]
	writer  controller.Writer[*corev1.ResourceQuota]
	sources *sources

	mu      sync.Mutex
	changed map[loop.Key]time.Time // when the usage of a quota was last seen to change
	delayed map[loop.Key]time.Time // since when usage waits to be lowered
	resting map[loop.Key]time.Time // until when the API is not read for a quota
}

func build(c controller.Context, resync time.Duration) *reconciler {
	r := &reconciler{
		resync: resync, quotas: informers.For[*corev1.ResourceQuota](c.Informers),
		changed: map[loop.Key]time.Time{}, delayed: map[loop.Key]time.Time{}, resting: map[loop.Key]time.Time{},
	}
	r.sources = newSources(c, r)
	synced := append([]loop.Syncer{r.quotas}, r.sources.syncers()...)
	r.loop = c.NewLoop("resource_quota", 0, r.reconcile, synced...)
	r.writer = controller.NewWriter(c, r.loop, r.quotas)
	r.quotas.OnChange(r.quotaChanged)
	return r
}

// Run runs the loop and the informers of counted resources until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.sources.run(ctx) })
	g.Go(func() error { return r.loop.Run(ctx) })
	return g.Wait()
}

// quotaChanged reconciles a quota at once if its spec has changed, and later, to correct
// it, if its usage has. As upstream, limits that a client writes into the status stay
// until the next resync.
func (r *reconciler) quotaChanged(old, new *corev1.ResourceQuota) {
	switch {
	case new == nil:
		r.loop.Wake(loop.KeyOf(old))
	case old == nil: // after a start of the controller, the last charge may be recent
		r.charged(loop.KeyOf(new))
		r.loop.Wake(loop.KeyOf(new))
	case !apiequality.Semantic.DeepEqual(old.Spec, new.Spec):
		r.loop.Wake(loop.KeyOf(new))
	case quota.Equal(old.Status.Hard, new.Status.Hard) && !quota.Equal(old.Status.Used, new.Status.Used):
		r.charged(loop.KeyOf(new))
		r.loop.WakeAfter(loop.KeyOf(new), settling)
	}
}

// charged records that the usage of a quota has changed.
func (r *reconciler) charged(key loop.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed[key] = time.Now()
}

// objectChanged reconciles the quotas of a namespace whose usage an object has changed.
func (r *reconciler) objectChanged(e quota.Evaluator, old, new metav1.Object) {
	obj := new
	if obj == nil {
		obj = old
	}
	for _, q := range r.quotas.In(obj.GetNamespace()) {
		names := e.Limiting(q.Spec.Hard)
		switch {
		case len(names) == 0:
		case old == nil: // charged before it was created
			r.loop.WakeAfter(loop.KeyOf(q), settling)
		case new == nil || r.differs(e, q, names, old, new):
			r.loop.Wake(loop.KeyOf(q))
		}
	}
}

func (r *reconciler) differs(e quota.Evaluator, q *corev1.ResourceQuota, names []corev1.ResourceName, old, new metav1.Object) bool {
	now := time.Now()
	return e.InScopes(q, old) != e.InScopes(q, new) || !quota.Equal(quota.Select(e.Usage(old, now), names), quota.Select(e.Usage(new, now), names))
}

// wakeLimiting reconciles the quotas that limit a resource: its objects can be counted
// now. Others are left alone: limits that a client writes into their status stay.
func (r *reconciler) wakeLimiting(e quota.Evaluator) {
	for _, q := range r.quotas.List() {
		if len(e.Limiting(q.Spec.Hard)) > 0 {
			r.loop.Wake(loop.KeyOf(q))
		}
	}
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	q, ok := r.quotas.Get(key.Namespace, key.Name)
	if !ok {
		r.forget(key)
		return loop.Done, nil
	}
	used, wait, err := r.used(ctx, key, q)
	if wait > 0 || err != nil {
		return loop.After(wait), err
	}
	next := q.DeepCopy()
	next.Status.Hard, next.Status.Used = q.Spec.Hard.DeepCopy(), used
	if quota.Equal(next.Status.Hard, q.Status.Hard) && quota.Equal(next.Status.Used, q.Status.Used) {
		r.lowered(key)
		return loop.After(r.resync), nil
	}
	_, err = r.writer.UpdateStatus(ctx, key, next)
	if err == nil {
		r.lowered(key)
	}
	return loop.After(r.resync), err
}

// used returns the usage to write, or how long to wait before it is known. The caches may lack
// objects that were charged long ago: usage is lowered only to what the API has. A charge after
// q makes the write of the status fail.
func (r *reconciler) used(ctx context.Context, key loop.Key, q *corev1.ResourceQuota) (corev1.ResourceList, time.Duration, error) {
	now := time.Now()
	cached := usage(q, r.sources.of, now)
	if len(quota.Growth(q.Status.Used, cached)) == 0 {
		return cached, 0, nil
	}
	if wait := r.settle(key, now); wait > 0 {
		return nil, wait, nil
	}
	present, n, err := r.sources.present(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	r.rest(key, now, n)
	return usage(q, present, now), 0, nil
}

// settle returns how long to wait before usage may be lowered.
func (r *reconciler) settle(key loop.Key, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.delayed[key]
	if !ok {
		r.delayed[key], since = now, now
	}
	return max(min(r.changed[key].Add(settling).Sub(now), since.Add(patience).Sub(now)), r.resting[key].Sub(now))
}

// rest delays the next read from the API for a quota after one of n objects: where objects
// come and go all the time, usage is lowered all the time.
func (r *reconciler) rest(key loop.Key, now time.Time, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resting[key] = now.Add(min(time.Duration(n)*perObject, patience))
}

// lowered records that no usage waits to be lowered.
func (r *reconciler) lowered(key loop.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.delayed, key)
}

func (r *reconciler) forget(key loop.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.delayed, key)
	delete(r.changed, key)
	delete(r.resting, key)
}
