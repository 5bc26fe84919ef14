package statefulset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/podcontrol"
	podstate "podium/pkg/controller/pods"
	"podium/pkg/controllers/history"
)

// Spec describes the stateful set controller.
func Spec(workers int, m *Metrics) controller.Spec {
	return controller.Spec{Name: "statefulset-controller", Workers: workers, New: func(c controller.Context) (controller.Runner, error) {
		return build(c, m), nil
	}}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	sets        *informer.Informer[*appsv1.StatefulSet]
	claims      *informer.Informer[*corev1.PersistentVolumeClaim]
	ownedPods   informers.Owned[*corev1.Pod]
	history     history.History[*appsv1.StatefulSet]
	pods        podcontrol.Control[*appsv1.StatefulSet]
	writer      controller.Writer[*appsv1.StatefulSet]
	podWriter   controller.Writer[*corev1.Pod]
	claimWriter controller.Writer[*corev1.PersistentVolumeClaim]
	metrics     *Metrics
}

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// pace is the minimum time between two status updates of a set whose pods change.
const pace = 20 * time.Millisecond

func build(c controller.Context, m *Metrics) *reconciler {
	pods, revisions := informers.For[*corev1.Pod](c.Informers), informers.For[*appsv1.ControllerRevision](c.Informers)
	r := &reconciler{
		Context:   c,
		sets:      informers.For[*appsv1.StatefulSet](c.Informers),
		claims:    informers.For[*corev1.PersistentVolumeClaim](c.Informers),
		ownedPods: informers.ByController[*corev1.Pod](c.Informers),
		metrics:   m,
	}
	r.Loop = c.NewLoop("statefulset", pace, r.reconcile, r.sets, pods, revisions, r.claims)
	r.history = history.New[*appsv1.StatefulSet](c, r.Loop, history.HashLabel)
	r.pods = podcontrol.New[*appsv1.StatefulSet](c, r.Loop)
	r.writer, r.podWriter, r.claimWriter = controller.NewWriter(c, r.Loop, r.sets), controller.NewWriter(c, r.Loop, pods), controller.NewWriter(c, r.Loop, r.claims)
	owners := ownership.Owners[*appsv1.StatefulSet]{
		Kind: kind.Kind, In: r.sets.In, Selector: func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector },
	}
	loop.WakeOn(r.Loop, r.sets, loop.Self)
	ownership.WakeOwners(r.Loop, pods, owners)
	ownership.WakeOwners(r.Loop, revisions, owners)
	loop.WakeOn(r.Loop, r.claims, r.setsOf)
	return r
}

// Run runs the loop until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	states := r.rolling
	r.metrics.states.Store(&states)
	defer r.metrics.states.Store(nil)
	return r.Loop.Run(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	set, ok := r.sets.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil // the garbage collector deletes its pods
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() {
		return loop.Done, nil // it would select all pods; the API refuses such sets
	}
	claims := r.claim(set, selector)
	if len(claims.Adopt)+len(claims.Release) > 0 {
		// The informer must show the outcome before the next step.
		return loop.After(0), errors.Join(r.pods.Release(ctx, set, claims.Release), r.pods.Adopt(ctx, set, claims.Adopt))
	}
	revisions, collisions, err := r.revisions(ctx, set, selector)
	if err != nil {
		if controller.NamespaceTerminating(err) {
			err = nil
		}
		return loop.Done, err
	}
	current, update := currentAndUpdate(set, revisions)
	s := stateOf(set, claims.Owned, current.Name, update.Name, time.Now())
	want, recount := status(s, claims.Owned, collisions)
	todo := decide(s)
	err = r.apply(ctx, s, todo, map[string]*appsv1.ControllerRevision{current.Name: current, update.Name: update})
	err = errors.Join(err, r.updateStatus(ctx, set, want))
	if err == nil && set.DeletionTimestamp == nil {
		live := sets.New(want.CurrentRevision, want.UpdateRevision, set.Status.CurrentRevision)
		for _, pod := range claims.Owned {
			live.Insert(revisionOf(pod))
		}
		err = r.history.Truncate(ctx, set, revisions, live, *set.Spec.RevisionHistoryLimit)
	}
	return loop.Result{After: sooner(recount, todo.Recheck)}, err
}

// claim sorts the pods of the set. Pods whose names are not those of the set do not belong
// to it, whatever their labels.
func (r *reconciler) claim(set *appsv1.StatefulSet, selector labels.Selector) ownership.Claims[*corev1.Pod] {
	var members, others, orphans []*corev1.Pod
	for _, pod := range r.ownedPods.By(set.UID) {
		if _, ok := ordinalOf(set, pod); ok {
			members = append(members, pod)
		} else {
			others = append(others, pod)
		}
	}
	for _, pod := range r.ownedPods.Orphans(set.Namespace) {
		if _, ok := ordinalOf(set, pod); ok {
			orphans = append(orphans, pod)
		}
	}
	c := ownership.Claim(set, selector, members, orphans)
	c.Release = append(c.Release, ownership.Claim(set, labels.Nothing(), others, nil).Release...)
	return c
}

// revisions returns the revisions of the set, oldest first, at least one.
func (r *reconciler) revisions(ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector) ([]*appsv1.ControllerRevision, *int32, error) {
	if set.DeletionTimestamp == nil {
		return r.history.Sync(ctx, set, history.Source{Template: &set.Spec.Template, Selector: selector, Collisions: set.Status.CollisionCount})
	}
	all := r.history.Of(set)
	if len(all) == 0 {
		all = []*appsv1.ControllerRevision{{ObjectMeta: metav1.ObjectMeta{Name: set.Status.UpdateRevision}}}
	}
	return all, set.Status.CollisionCount, nil
}

// currentAndUpdate returns the revision that all pods had last, and the newest one.
func currentAndUpdate(set *appsv1.StatefulSet, revisions []*appsv1.ControllerRevision) (current, update *appsv1.ControllerRevision) {
	update = revisions[len(revisions)-1]
	for _, r := range revisions {
		if r.Name == set.Status.CurrentRevision {
			return r, update
		}
	}
	return update, update
}

// apply repairs the labels of pods and the owners of claims, then performs the plan.
func (r *reconciler) apply(ctx context.Context, s *state, todo plan, revisions map[string]*appsv1.ControllerRevision) error {
	if s.set.DeletionTimestamp != nil {
		return nil
	}
	for _, pod := range s.replicas {
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		if err := errors.Join(r.label(ctx, s.set, pod), r.keepClaims(ctx, s.set, pod)); err != nil {
			return err
		}
	}
	for _, pod := range s.condemned {
		if err := r.keepClaims(ctx, s.set, pod); err != nil {
			return err
		}
	}
	err := loop.SlowStart(ctx, len(todo.Create), func(ctx context.Context, i int) error {
		return r.create(ctx, s, todo.Create[i], revisions)
	})
	return errors.Join(err, loop.Parallel(ctx, len(todo.Delete), func(ctx context.Context, i int) error {
		return r.delete(ctx, s.set, todo.Delete[i])
	}))
}

// label gives a pod the labels of its identity.
func (r *reconciler) label(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	ordinal, _ := ordinalOf(set, pod)
	if identified(pod, ordinal) {
		return nil
	}
	_, err := r.podWriter.Patch(ctx, loop.KeyOf(set), pod, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"labels": identity(pod.Name, ordinal)},
	})
	r.podEvent(set, "update", pod, err)
	return err
}

// create creates replica i and, before it, its claims. It does nothing while a claim of the
// former pod is about to be deleted.
func (r *reconciler) create(ctx context.Context, s *state, i int, revisions map[string]*appsv1.ControllerRevision) error {
	revision := revisions[s.due(i)]
	template, err := history.Template(revision)
	if err != nil {
		return err
	}
	pod := identify(s.set, r.pods.FromTemplate(s.set, template), firstOrdinal(s.set)+i, revision.Name)
	ok, err := r.ensureClaims(ctx, s.set, pod)
	if err == nil && !ok {
		return nil
	}
	if err == nil {
		_, err = r.podWriter.Create(ctx, loop.KeyOf(s.set), pod)
	}
	switch {
	case controller.NamespaceTerminating(err):
		return nil // the set will be deleted, too
	case !apierrors.IsAlreadyExists(err): // that may be the pod of a reconcile whose answer was lost
		r.podEvent(s.set, "create", pod, err)
	}
	return err
}

func (r *reconciler) delete(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	if _, stays := indexOf(set, pod); stays && podstate.Terminal(pod) {
		r.recreating(set, pod)
	}
	deleted, err := r.podWriter.Delete(ctx, loop.KeyOf(set), pod, metav1.DeleteOptions{})
	if deleted || err != nil {
		r.podEvent(set, "delete", pod, err)
	}
	return err
}

// recreating reports that a terminal pod is replaced.
func (r *reconciler) recreating(set *appsv1.StatefulSet, pod *corev1.Pod) {
	severity, reason, state := corev1.EventTypeNormal, "RecreatingTerminatedPod", "terminated"
	if pod.Status.Phase == corev1.PodFailed {
		severity, reason, state = corev1.EventTypeWarning, "RecreatingFailedPod", "failed"
	}
	r.Events.Event(set, severity, reason, fmt.Sprintf("StatefulSet %s/%s is recreating %s Pod %s", set.Namespace, set.Name, state, pod.Name))
}

func (r *reconciler) podEvent(set *appsv1.StatefulSet, verb string, pod *corev1.Pod, err error) {
	r.event(set, verb, fmt.Sprintf("Pod %s in StatefulSet %s", pod.Name, set.Name), "successful", err)
}

// event reports the outcome of a write, in upstream's words.
func (r *reconciler) event(set *appsv1.StatefulSet, verb, what, success string, err error) {
	title := strings.ToUpper(verb[:1]) + verb[1:]
	if err != nil {
		r.Events.Event(set, corev1.EventTypeWarning, "Failed"+title, fmt.Sprintf("%s %s failed error: %s", verb, what, err))
		return
	}
	r.Events.Event(set, corev1.EventTypeNormal, "Successful"+title, fmt.Sprintf("%s %s %s", verb, what, success))
}

// updateStatus writes the status if it differs from the current one.
func (r *reconciler) updateStatus(ctx context.Context, set *appsv1.StatefulSet, want appsv1.StatefulSetStatus) error {
	if equality.Semantic.DeepEqual(want, set.Status) {
		return nil
	}
	next := set.DeepCopy()
	next.Status = want
	_, err := r.writer.UpdateStatus(ctx, loop.KeyOf(set), next)
	return err
}
