package daemonset

import (
	"cmp"
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/podcontrol"
	"podium/pkg/controllers/history"
)

// Spec describes the daemon set controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{
		Name: "daemonset-controller", Account: "daemon-set-controller", Component: "daemonset-controller", Workers: workers, New: build,
	}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	sets      *informer.Informer[*appsv1.DaemonSet]
	nodes     *informer.Informer[*corev1.Node]
	ownedPods informers.Owned[*corev1.Pod]
	writer    controller.Writer[*appsv1.DaemonSet]
	pods      podcontrol.Control[*appsv1.DaemonSet]
	history   history.History[*appsv1.DaemonSet]
	failures  *failures
}

// pace is the minimum time between two status updates of a daemon set whose pods change.
const pace = 20 * time.Millisecond

const kind = "DaemonSet"

func build(c controller.Context) (controller.Runner, error) {
	pods := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler{
		Context:   c,
		sets:      informers.For[*appsv1.DaemonSet](c.Informers),
		nodes:     informers.For[*corev1.Node](c.Informers),
		ownedPods: informers.ByController[*corev1.Pod](c.Informers),
		failures:  newFailures(),
	}
	r.Loop = c.NewLoop("daemonset", pace, r.reconcile, r.sets, r.nodes, pods, informers.For[*appsv1.ControllerRevision](c.Informers))
	r.writer = controller.NewWriter(c, r.Loop, r.sets)
	r.pods = podcontrol.New[*appsv1.DaemonSet](c, r.Loop)
	r.history = history.New[*appsv1.DaemonSet](c, r.Loop, appsv1.DefaultDaemonSetUniqueLabelKey)
	owners := ownership.Owners[*appsv1.DaemonSet]{
		Kind: kind, In: r.sets.In, Selector: func(ds *appsv1.DaemonSet) *metav1.LabelSelector { return ds.Spec.Selector },
	}
	loop.WakeOn(r.Loop, r.sets, loop.Self)
	ownership.WakeOwners(r.Loop, pods, owners)
	ownership.WakeOwners(r.Loop, r.history.Informer, owners)
	r.nodes.OnChange(r.nodeChanged)
	return r, nil
}

// nodeChanged enqueues all daemon sets if the change may matter to them.
func (r *reconciler) nodeChanged(old, new *corev1.Node) {
	if old != nil && new != nil && sameForPods(old, new) {
		return
	}
	for _, ds := range r.sets.List() {
		r.Wake(loop.KeyOf(ds))
	}
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ds, ok := r.sets.Get(key.Namespace, key.Name)
	if !ok {
		r.failures.forget(key) // the garbage collector deletes its pods
		return loop.Done, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil || selector.Empty() || ds.DeletionTimestamp != nil {
		return loop.Done, nil // the API refuses selectors of all pods
	}
	claims := ownership.Claim(ds, selector, r.ownedPods.By(ds.UID), r.ownedPods.Orphans(ds.Namespace))
	if len(claims.Adopt)+len(claims.Release) > 0 {
		// The informers must show the outcome before the next step.
		return loop.After(0), errors.Join(r.pods.Release(ctx, ds, claims.Release), r.pods.Adopt(ctx, ds, claims.Adopt))
	}
	revisions, collisions, err := r.history.Sync(ctx, ds, history.Source{Template: &ds.Spec.Template, Selector: selector, Collisions: ds.Status.CollisionCount})
	if err != nil {
		if controller.NamespaceTerminating(err) {
			return loop.Done, nil // the daemon set will be deleted, too
		}
		return loop.Done, err
	}
	s := newState(ds, hashOf(revisions[len(revisions)-1]), r.nodes.List(), claims.Owned, time.Now())
	err = r.apply(ctx, s, s.decide(func(node string) time.Duration { return r.failures.held(ds, node, s.now) }))
	want := s.status()
	want.CollisionCount = collisions
	err = errors.Join(err, r.updateStatus(ctx, ds, want), r.history.Truncate(ctx, ds, revisions, live(revisions, claims.Owned), *ds.Spec.RevisionHistoryLimit))
	return loop.Result{After: s.recheck}, err
}

// apply performs the plan. It creates pods even if it cannot delete some, and the reverse.
func (r *reconciler) apply(ctx context.Context, s *state, todo plan) error {
	for _, pod := range todo.Ended {
		node := nodeOf(pod)
		if pod.Status.Phase == corev1.PodSucceeded {
			r.Events.Eventf(s.DaemonSet, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, node)
			continue
		}
		r.failures.deleted(s.DaemonSet, node, s.now)
		r.Events.Eventf(s.DaemonSet, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, node)
	}
	err := r.pods.Delete(ctx, s.DaemonSet, append(todo.Ended, todo.Delete...))
	if len(todo.Create) == 0 {
		return err
	}
	pod := r.pods.FromTemplate(s.DaemonSet, template(s.DaemonSet, s.hash))
	_, createErr := r.pods.CreateEach(ctx, s.DaemonSet, len(todo.Create), func(i int) *corev1.Pod { return onNode(pod, todo.Create[i]) })
	return errors.Join(err, createErr)
}

// updateStatus writes the status if it differs from the current one.
func (r *reconciler) updateStatus(ctx context.Context, ds *appsv1.DaemonSet, want appsv1.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(want, ds.Status) {
		return nil
	}
	next := ds.DeepCopy()
	next.Status = want
	_, err := r.writer.UpdateStatus(ctx, loop.KeyOf(ds), next)
	return err
}

// hashOf returns the value of the hash label of pods of the revision. Revisions that were
// not made by this controller may lack it.
func hashOf(r *appsv1.ControllerRevision) string {
	return cmp.Or(r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], r.Name)
}

// live returns the names of the current revision, the last one, and of those that pods have.
func live(revisions []*appsv1.ControllerRevision, owned []*corev1.Pod) sets.Set[string] {
	hashes := sets.New[string]()
	for _, pod := range owned {
		hashes.Insert(pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey])
	}
	names := sets.New(revisions[len(revisions)-1].Name)
	for _, r := range revisions {
		if hashes.Has(hashOf(r)) {
			names.Insert(r.Name)
		}
	}
	return names
}
