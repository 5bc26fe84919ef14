package replicaset

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/podcontrol"
	"podium/pkg/controller/pods"
	"podium/pkg/scheme"
)

// Spec describes the replica set controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{Name: "replicaset-controller", Workers: workers, New: func(c controller.Context) (controller.Runner, error) {
		return Build(c, Kind[*appsv1.ReplicaSet]{
			Loop:       "replicaset",
			Set:        func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return rs },
			WithStatus: withStatus,
		})
	}}
}

func withStatus(rs *appsv1.ReplicaSet, s appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
	next := rs.DeepCopy()
	next.Status = s
	return next
}

// Kind describes a kind whose objects the controller reconciles like ReplicaSets.
type Kind[T scheme.Object] struct {
	Loop string // name of the work queue in metrics
	// Set returns obj as a ReplicaSet, which may share memory with obj and is not changed.
	Set func(obj T) *appsv1.ReplicaSet
	// WithStatus returns a copy of obj with the status.
	WithStatus func(obj T, s appsv1.ReplicaSetStatus) T
	// NoTerminating means that the status of the kind does not count terminating pods.
	NoTerminating bool
}

type reconciler[T scheme.Object] struct {
	*loop.Loop
	kind      Kind[T]
	sets      *informer.Informer[T]
	ownedSets informers.Owned[T]
	ownedPods informers.Owned[*corev1.Pod]
	writer    controller.Writer[T]
	pods      podcontrol.Control[T]
}

// pace is the minimum time between two status updates of a set whose pods change.
const pace = 20 * time.Millisecond

// Build builds the controller of a kind.
func Build[T scheme.Object](c controller.Context, kind Kind[T]) (controller.Runner, error) {
	pods := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler[T]{
		kind:      kind,
		sets:      informers.For[T](c.Informers),
		ownedSets: informers.ByController[T](c.Informers),
		ownedPods: informers.ByController[*corev1.Pod](c.Informers),
	}
	r.Loop = c.NewLoop(kind.Loop, pace, r.reconcile, r.sets, pods)
	r.writer = controller.NewWriter(c, r.Loop, r.sets)
	r.pods = podcontrol.New[T](c, r.Loop)
	loop.WakeOn(r.Loop, r.sets, loop.Self)
	ownership.WakeOwners(r.Loop, pods, ownership.Owners[T]{
		Kind: scheme.KindOf[T](c.Client.Scheme()).Kind, In: r.sets.In, Selector: func(obj T) *metav1.LabelSelector { return kind.Set(obj).Spec.Selector },
	})
	return r, nil
}

func (r *reconciler[T]) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	owner, ok := r.sets.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil // the garbage collector deletes its pods
	}
	rs := r.kind.Set(owner)
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil || selector.Empty() {
		return loop.Done, nil // it would select all pods; the API refuses such sets
	}
	owned := r.ownedPods.By(rs.UID)
	todo := decide(rs, selector, owned, r.ownedPods.Orphans(rs.Namespace), func() map[string]int { return r.siblings(owner) }, time.Now())
	failed, err := r.apply(ctx, owner, &rs.Spec.Template, todo)
	after, statusErr := r.updateStatus(ctx, key, owner, keep(owned, func(p *corev1.Pod) bool {
		return selector.Matches(labels.Set(p.Labels))
	}), failed)
	return loop.Result{After: after}, errors.Join(err, statusErr)
}

// siblings counts, per node, the active pods of all sets with the controller of set.
func (r *reconciler[T]) siblings(set T) map[string]int {
	family := []T{set}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		family = r.ownedSets.By(owner.UID)
	}
	perNode := map[string]int{}
	for _, member := range family {
		for _, p := range r.ownedPods.By(member.GetUID()) {
			if pods.Active(p) {
				perNode[p.Spec.NodeName]++
			}
		}
	}
	return perNode
}

// apply performs the plan. failed is the failure to report in the status, nil if there is none.
func (r *reconciler[T]) apply(ctx context.Context, owner T, template *corev1.PodTemplateSpec, todo plan) (failed *failure, err error) {
	err = r.pods.Release(ctx, owner, todo.Release)
	if adoptErr := r.pods.Adopt(ctx, owner, todo.Adopt); adoptErr != nil {
		return nil, errors.Join(err, adoptErr) // the number of pods is unknown
	}
	if n := todo.Create; n > 0 {
		if createErr := r.pods.Create(ctx, owner, r.pods.FromTemplate(owner, template), n); createErr != nil {
			err = errors.Join(err, createErr)
			failed = &failure{Reason: "FailedCreate", Message: createErr.Error()}
		}
	}
	if deleteErr := r.pods.Delete(ctx, owner, todo.Delete); deleteErr != nil {
		err = errors.Join(err, deleteErr)
		failed = &failure{Reason: "FailedDelete", Message: deleteErr.Error()}
	}
	return failed, err
}

// updateStatus writes the status if it differs from the current one.
func (r *reconciler[T]) updateStatus(ctx context.Context, key loop.Key, owner T, owned []*corev1.Pod, failed *failure) (recount time.Duration, err error) {
	rs := r.kind.Set(owner)
	want, recount := status(rs, owned, failed, time.Now())
	if r.kind.NoTerminating {
		want.TerminatingReplicas = nil
	}
	if equality.Semantic.DeepEqual(want, rs.Status) {
		return recount, nil
	}
	if _, err := r.writer.UpdateStatus(ctx, key, r.kind.WithStatus(owner, want)); err != nil {
		return 0, err
	}
	return recount, nil
}
