package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	podstate "podium/pkg/controller/pods"
)

// Spec describes the deployment controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{Name: "deployment-controller", Workers: workers, New: build}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	deployments *informer.Informer[*appsv1.Deployment]
	replicaSets *informer.Informer[*appsv1.ReplicaSet]
	ownedSets   informers.Owned[*appsv1.ReplicaSet]
	ownedPods   informers.Owned[*corev1.Pod]
	writer      controller.Writer[*appsv1.Deployment]
	sets        controller.Writer[*appsv1.ReplicaSet]
	adopter     ownership.Adopter[*appsv1.Deployment, *appsv1.ReplicaSet]
}

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// pace is the minimum time between two status updates of a deployment whose pods change.
const pace = 20 * time.Millisecond

func build(c controller.Context) (controller.Runner, error) {
	pods := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler{
		Context:     c,
		deployments: informers.For[*appsv1.Deployment](c.Informers),
		replicaSets: informers.For[*appsv1.ReplicaSet](c.Informers),
		ownedSets:   informers.ByController[*appsv1.ReplicaSet](c.Informers),
		ownedPods:   informers.ByController[*corev1.Pod](c.Informers),
	}
	r.Loop = c.NewLoop("deployment", pace, r.reconcile, r.deployments, r.replicaSets, pods)
	r.writer, r.sets = controller.NewWriter(c, r.Loop, r.deployments), controller.NewWriter(c, r.Loop, r.replicaSets)
	r.adopter = ownership.NewAdopter[*appsv1.Deployment](c, r.sets)
	loop.WakeOn(r.Loop, r.deployments, loop.Self)
	ownership.WakeOwners(r.Loop, r.replicaSets, ownership.Owners[*appsv1.Deployment]{
		Kind: kind.Kind, In: r.deployments.In, Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
	})
	pods.OnChange(r.podEnded)
	return r, nil
}

// podEnded enqueues a deployment that may wait for the end of its old pods.
func (r *reconciler) podEnded(old, new *corev1.Pod) {
	if old == nil || new != nil && !podstate.Terminal(new) {
		return
	}
	for _, key := range loop.Owner[*corev1.Pod]("ReplicaSet")(old) {
		if rs, ok := r.replicaSets.Get(key.Namespace, key.Name); ok {
			r.Wake(loop.Owner[*appsv1.ReplicaSet](kind.Kind)(rs)...)
		}
	}
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	d, ok := r.deployments.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil // the garbage collector deletes its replica sets
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || selector.Empty() {
		return loop.Done, nil // it would select all replica sets; the API refuses such deployments
	}
	claims := ownership.Claim(d, selector, r.ownedSets.By(d.UID), r.ownedSets.Orphans(d.Namespace))
	if len(claims.Adopt)+len(claims.Release) > 0 {
		// The informers must show the outcome before the next step.
		return loop.After(0), errors.Join(r.adopter.Release(ctx, d, claims.Release), r.adopter.Adopt(ctx, d, claims.Adopt))
	}
	todo := decide(d, claims.Owned, r.oldPods, time.Now())
	err = r.take(ctx, d, &todo)
	if err != nil {
		todo.Revision = "" // the replica set may not have it yet
	}
	if statusErr := r.updateStatus(ctx, d, todo.Status, todo.Revision); statusErr != nil {
		return loop.Done, errors.Join(err, statusErr)
	}
	return loop.Result{After: todo.Recheck}, err
}

// oldPods reports whether pods of these sets still exist, terminating ones included.
func (r *reconciler) oldPods(old []*appsv1.ReplicaSet) bool {
	for _, rs := range old {
		for _, p := range r.ownedPods.By(rs.UID) {
			if !podstate.Terminal(p) {
				return true
			}
		}
	}
	return false
}

// take performs the step and records failures in the step's status.
func (r *reconciler) take(ctx context.Context, d *appsv1.Deployment, todo *step) error {
	if todo.Create != nil {
		if err := r.create(ctx, d, todo); err != nil {
			return err
		}
	}
	for _, u := range todo.Update {
		if err := r.update(ctx, d, u); err != nil {
			return err
		}
	}
	for _, rs := range todo.Delete {
		if err := r.delete(ctx, d, rs); err != nil {
			return err
		}
	}
	return nil
}

// create creates the new replica set. Its name depends on the template, so that a retry
// finds the set of the first attempt. If a set of another template has the same hash, the
// deployment counts a collision and uses another name.
func (r *reconciler) create(ctx context.Context, d *appsv1.Deployment, todo *step) error {
	rs := todo.Create
	got, err := r.sets.Create(ctx, loop.KeyOf(d), rs)
	switch {
	case err == nil:
		if n := *got.Spec.Replicas; n > 0 {
			r.Events.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet", fmt.Sprintf("Scaled up replica set %s from 0 to %d", got.Name, n))
		}
		return nil
	case controller.NamespaceTerminating(err):
		todo.Status.Conditions = d.Status.Conditions
		todo.Revision = ""
		return nil // the deployment will be deleted, too
	case apierrors.IsAlreadyExists(err):
		return r.collide(ctx, d, todo)
	}
	message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
	createFailed(d, &todo.Status, message, time.Now())
	r.Events.Event(d, corev1.EventTypeWarning, reasonCreateError, message)
	return fmt.Errorf("create replica set %s: %w", rs.Name, err)
}

func (r *reconciler) collide(ctx context.Context, d *appsv1.Deployment, todo *step) error {
	live, err := r.sets.Get(ctx, d.Namespace, todo.Create.Name)
	if err != nil {
		return fmt.Errorf("get existing replica set %s: %w", todo.Create.Name, err)
	}
	owner := metav1.GetControllerOfNoCopy(live)
	if owner != nil && owner.UID == d.UID && sameTemplate(&live.Spec.Template, &d.Spec.Template) {
		r.sets.Wrote(loop.KeyOf(d), live) // created by an earlier attempt
		return nil
	}
	todo.Status.Conditions = d.Status.Conditions
	todo.Status.CollisionCount = new(int32)
	if d.Status.CollisionCount != nil {
		*todo.Status.CollisionCount = *d.Status.CollisionCount
	}
	*todo.Status.CollisionCount++
	return fmt.Errorf("replica set %s exists with another template: use another name", live.Name)
}

func (r *reconciler) update(ctx context.Context, d *appsv1.Deployment, u change) error {
	got, err := r.sets.Update(ctx, loop.KeyOf(d), u.To)
	from, to := *u.From.Spec.Replicas, *u.To.Spec.Replicas
	if err != nil || got == nil || from == to {
		return err
	}
	direction := "up"
	if to < from {
		direction = "down"
	}
	r.Events.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet",
		fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, u.To.Name, from, to))
	return nil
}

func (r *reconciler) delete(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet) error {
	_, err := r.sets.Delete(ctx, loop.KeyOf(d), rs, controller.Unchanged(rs))
	return err
}

// updateStatus writes the status, and the revision unless it is "", if they differ from the
// current ones. Unchanged conditions keep their timestamps, so that equal statuses compare
// equal. The revision is written through /status because any other change of an annotation
// increments metadata.generation.
func (r *reconciler) updateStatus(ctx context.Context, d *appsv1.Deployment, want appsv1.DeploymentStatus, revision string) error {
	if revision == "" && equality.Semantic.DeepEqual(want, d.Status) {
		return nil
	}
	next := d.DeepCopy()
	next.Status = want
	if revision != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, revisionAnnotation, revision)
	}
	_, err := r.writer.UpdateStatus(ctx, loop.KeyOf(d), next)
	return err
}
