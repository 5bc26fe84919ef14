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
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/ownership"
	podstate "podium/pkg/controllers/pods"
)

// Controller is the deployment controller.
type Controller struct {
	cfg         kit.Kit
	deployments client.Resource[*appsv1.Deployment]
	sets        client.Resource[*appsv1.ReplicaSet]
	hand        ownership.Hand[*appsv1.Deployment, *appsv1.ReplicaSet]
	loop        *loop.Loop
}

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// pace bounds how often one deployment's status follows its pods.
const pace = 20 * time.Millisecond

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{
		cfg:         cfg,
		deployments: client.For[*appsv1.Deployment](cfg.Client),
		sets:        client.For[*appsv1.ReplicaSet](cfg.Client),
	}
	c.loop = cfg.Loop("deployment", pace, c.reconcile, cfg.Views.Deployments, cfg.Views.ReplicaSets, cfg.Views.Pods)
	c.hand = ownership.Hand[*appsv1.Deployment, *appsv1.ReplicaSet]{Client: cfg.Client, Wrote: c.wroteSet}
	loop.WakeOn(c.loop, cfg.Views.Deployments, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.ReplicaSets, c.deploymentsOf)
	cfg.Views.Pods.OnChange(c.podEnded)
	return c
}

// Run rolls until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// deploymentsOf names the set's owner, or those that might adopt it.
func (c *Controller) deploymentsOf(rs *appsv1.ReplicaSet) []loop.Key {
	if metav1.GetControllerOfNoCopy(rs) != nil {
		return loop.Owner[*appsv1.ReplicaSet](kind.Kind)(rs)
	}
	var keys []loop.Key
	for _, d := range c.cfg.Views.Deployments.In(rs.Namespace) {
		if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && s.Matches(labels.Set(rs.Labels)) {
			keys = append(keys, loop.KeyOf(d))
		}
	}
	return keys
}

// podEnded wakes a deployment that may wait for its old pods to be gone.
func (c *Controller) podEnded(old, new *corev1.Pod) {
	if old == nil || new != nil && !podstate.Terminal(new) {
		return
	}
	for _, key := range loop.Owner[*corev1.Pod]("ReplicaSet")(old) {
		if rs, ok := c.cfg.Views.ReplicaSets.Get(key.Namespace, key.Name); ok {
			c.loop.Wake(loop.Owner[*appsv1.ReplicaSet](kind.Kind)(rs)...)
		}
	}
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	d, ok := c.cfg.Views.Deployments.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil // gone; its replica sets belong to the garbage collector
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || selector.Empty() {
		return loop.Done, nil // would own everything; the server refuses such ones
	}
	claims := ownership.Claim(d, selector, c.cfg.Views.ReplicaSetsOwnedBy(d.UID), c.cfg.Views.OrphanReplicaSets(d.Namespace))
	if len(claims.Adopt)+len(claims.Release) > 0 {
		// What is decided here must be seen by the views before the next step.
		return loop.After(0), errors.Join(c.hand.Release(ctx, d, claims.Release), c.hand.Adopt(ctx, d, claims.Adopt))
	}
	todo := decide(d, claims.Owned, c.oldPods, time.Now())
	err = c.take(ctx, d, &todo)
	if err != nil {
		todo.Revision = "" // its replica set may not have it yet
	}
	if statusErr := c.writeStatus(ctx, d, todo.Status, todo.Revision); statusErr != nil {
		return loop.Done, errors.Join(err, statusErr)
	}
	return loop.Result{After: todo.Recheck}, err
}

// oldPods says whether pods of these sets still exist, be it that they terminate.
func (c *Controller) oldPods(old []*appsv1.ReplicaSet) bool {
	for _, rs := range old {
		for _, p := range c.cfg.Views.PodsOwnedBy(rs.UID) {
			if !podstate.Terminal(p) {
				return true
			}
		}
	}
	return false
}

// take makes the step. What it could not do is noted in the step's status.
func (c *Controller) take(ctx context.Context, d *appsv1.Deployment, todo *step) error {
	if todo.Create != nil {
		if err := c.create(ctx, d, todo); err != nil {
			return err
		}
	}
	for _, u := range todo.Update {
		if err := c.update(ctx, d, u); err != nil {
			return err
		}
	}
	for _, rs := range todo.Delete {
		if err := c.delete(ctx, d, rs); err != nil {
			return err
		}
	}
	return nil
}

// create makes the new replica set. Its name follows from the template, so a
// second attempt finds what the first one made; another template of the same
// hash makes the deployment count a collision and use another name.
func (c *Controller) create(ctx context.Context, d *appsv1.Deployment, todo *step) error {
	rs := todo.Create
	got, err := c.sets.Create(ctx, rs)
	switch {
	case err == nil:
		c.wroteSet(d, got.ResourceVersion)
		if n := *got.Spec.Replicas; n > 0 {
			c.cfg.Events.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet", fmt.Sprintf("Scaled up replica set %s from 0 to %d", got.Name, n))
		}
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		todo.Status.Conditions = d.Status.Conditions
		todo.Revision = ""
		return nil // nothing can be created there any more, and the deployment will go too
	case apierrors.IsAlreadyExists(err):
		return c.collide(ctx, d, todo)
	}
	message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
	createFailed(d, &todo.Status, message, time.Now())
	c.cfg.Events.Event(d, corev1.EventTypeWarning, reasonCreateError, message)
	return fmt.Errorf("create replica set %s: %w", rs.Name, err)
}

func (c *Controller) collide(ctx context.Context, d *appsv1.Deployment, todo *step) error {
	live, err := c.sets.In(d.Namespace).Get(ctx, todo.Create.Name)
	if err != nil {
		return fmt.Errorf("replica set %s is said to exist: %w", todo.Create.Name, err)
	}
	owner := metav1.GetControllerOfNoCopy(live)
	if owner != nil && owner.UID == d.UID && sameTemplate(&live.Spec.Template, &d.Spec.Template) {
		c.wroteSet(d, live.ResourceVersion) // ours, from before: wait until it shows
		return nil
	}
	todo.Status.Conditions = d.Status.Conditions
	todo.Status.CollisionCount = new(int32)
	if d.Status.CollisionCount != nil {
		*todo.Status.CollisionCount = *d.Status.CollisionCount
	}
	*todo.Status.CollisionCount++
	return fmt.Errorf("replica set %s exists and is another template's: use another name", live.Name)
}

func (c *Controller) update(ctx context.Context, d *appsv1.Deployment, u change) error {
	got, err := c.sets.Update(ctx, u.To)
	if err != nil {
		return fmt.Errorf("update replica set %s: %w", u.To.Name, err)
	}
	c.wroteSet(d, got.ResourceVersion)
	from, to := *u.From.Spec.Replicas, *u.To.Spec.Replicas
	if from == to {
		return nil
	}
	direction := "up"
	if to < from {
		direction = "down"
	}
	c.cfg.Events.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet",
		fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, u.To.Name, from, to))
	return nil
}

func (c *Controller) delete(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet) error {
	err := c.sets.In(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete old replica set %s: %w", rs.Name, err)
	}
	c.loop.Wait(loop.KeyOf(d), func() bool {
		now, ok := c.cfg.Views.ReplicaSets.Get(rs.Namespace, rs.Name)
		return !ok || now.UID != rs.UID || now.DeletionTimestamp != nil
	})
	return nil
}

// writeStatus writes the status and the revision, which is "" if it stays, if
// they differ from what stands. The times of conditions that stand are kept, so
// equal means equal. The revision goes through /status, too: an annotation that
// is written elsewhere raises metadata.generation.
func (c *Controller) writeStatus(ctx context.Context, d *appsv1.Deployment, want appsv1.DeploymentStatus, revision string) error {
	if revision == "" && equality.Semantic.DeepEqual(want, d.Status) {
		return nil
	}
	next := d.DeepCopy()
	next.Status = want
	if revision != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, revisionAnnotation, revision)
	}
	got, err := c.deployments.UpdateStatus(ctx, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	c.wrote(d, got.ResourceVersion)
	return nil
}

func (c *Controller) wrote(d *appsv1.Deployment, resourceVersion string) {
	c.loop.Wrote(loop.KeyOf(d), c.cfg.Views.Deployments, resourceVersion)
}

func (c *Controller) wroteSet(d *appsv1.Deployment, resourceVersion string) {
	c.loop.Wrote(loop.KeyOf(d), c.cfg.Views.ReplicaSets, resourceVersion)
}
