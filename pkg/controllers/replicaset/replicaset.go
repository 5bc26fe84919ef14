package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/ownership"
	"podium/pkg/controllers/pods"
)

// Controller is the replica set controller.
type Controller struct {
	cfg  kit.Kit
	sets client.Resource[*appsv1.ReplicaSet]
	pods client.Resource[*corev1.Pod]
	hand ownership.Hand[*appsv1.ReplicaSet, *corev1.Pod]
	loop *loop.Loop
}

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// pace bounds how often one set's status follows its pods.
const pace = 20 * time.Millisecond

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg, sets: client.For[*appsv1.ReplicaSet](cfg.Client), pods: client.For[*corev1.Pod](cfg.Client)}
	c.loop = cfg.Loop("replicaset", pace, c.reconcile, cfg.Views.ReplicaSets, cfg.Views.Pods)
	c.hand = ownership.Hand[*appsv1.ReplicaSet, *corev1.Pod]{Client: cfg.Client, Wrote: func(rs *appsv1.ReplicaSet, rv string) {
		c.loop.Wrote(loop.KeyOf(rs), cfg.Views.Pods, rv)
	}}
	loop.WakeOn(c.loop, cfg.Views.ReplicaSets, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.Pods, c.setsOf)
	return c
}

// Run keeps the pods until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// setsOf names the pod's owner, or those that might adopt it.
func (c *Controller) setsOf(pod *corev1.Pod) []loop.Key {
	if metav1.GetControllerOfNoCopy(pod) != nil {
		return loop.Owner[*corev1.Pod](kind.Kind)(pod)
	}
	if len(pod.Labels) == 0 || !pods.Active(pod) {
		return nil
	}
	var keys []loop.Key
	for _, rs := range c.cfg.Views.ReplicaSets.In(pod.Namespace) {
		if s, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector); err == nil && s.Matches(labels.Set(pod.Labels)) {
			keys = append(keys, loop.KeyOf(rs))
		}
	}
	return keys
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	rs, ok := c.cfg.Views.ReplicaSets.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil // gone; its pods belong to the garbage collector
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil || selector.Empty() {
		return loop.Done, nil // would own everything; the server refuses such ones
	}
	owned := c.cfg.Views.PodsOwnedBy(rs.UID)
	todo := decide(rs, selector, owned, c.cfg.Views.OrphanPods(rs.Namespace), func() map[string]int { return c.siblings(rs) }, time.Now())
	failed, err := c.apply(ctx, rs, todo)
	after, statusErr := c.writeStatus(ctx, rs, keep(owned, func(p *corev1.Pod) bool {
		return selector.Matches(labels.Set(p.Labels))
	}), failed)
	return loop.Result{After: after}, errors.Join(err, statusErr)
}

// siblings counts the active pods per node of all replica sets that rs's owner has.
func (c *Controller) siblings(rs *appsv1.ReplicaSet) map[string]int {
	family := []*appsv1.ReplicaSet{rs}
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		family = c.cfg.Views.ReplicaSetsOwnedBy(owner.UID)
	}
	perNode := map[string]int{}
	for _, member := range family {
		for _, p := range c.cfg.Views.PodsOwnedBy(member.UID) {
			if pods.Active(p) {
				perNode[p.Spec.NodeName]++
			}
		}
	}
	return perNode
}

// apply carries the plan out. failed is what the status has to say about it.
func (c *Controller) apply(ctx context.Context, rs *appsv1.ReplicaSet, todo plan) (failed *failure, err error) {
	err = c.hand.Release(ctx, rs, todo.Release)
	if adoptErr := c.hand.Adopt(ctx, rs, todo.Adopt); adoptErr != nil {
		return nil, errors.Join(err, adoptErr) // how many pods there are is not known
	}
	if n := todo.Create; n > 0 {
		if createErr := c.create(ctx, rs, n); createErr != nil {
			err = errors.Join(err, createErr)
			failed = &failure{Reason: "FailedCreate", Message: createErr.Error()}
		}
	}
	if len(todo.Delete) > 0 {
		if deleteErr := c.delete(ctx, rs, todo.Delete); deleteErr != nil {
			err = errors.Join(err, deleteErr)
			failed = &failure{Reason: "FailedDelete", Message: deleteErr.Error()}
		}
	}
	return failed, err
}

// create makes n pods: one, then two, then four at a time, so that a template
// that is refused costs few requests.
func (c *Controller) create(ctx context.Context, rs *appsv1.ReplicaSet, n int) error {
	pod := fromTemplate(rs)
	err := loop.SlowStart(ctx, n, func(ctx context.Context, _ int) error {
		got, err := c.pods.In(rs.Namespace).Create(ctx, pod.DeepCopy())
		if err != nil {
			if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				c.cfg.Events.Event(rs, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+err.Error())
			}
			return err
		}
		c.loop.Wrote(loop.KeyOf(rs), c.cfg.Views.Pods, got.ResourceVersion)
		c.cfg.Events.Event(rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+got.Name)
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // nothing can be created there any more, and the set will go too
	}
	return err
}

func (c *Controller) delete(ctx context.Context, rs *appsv1.ReplicaSet, surplus []*corev1.Pod) error {
	return loop.Parallel(ctx, len(surplus), func(ctx context.Context, i int) error {
		p := surplus[i]
		err := c.pods.In(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			c.cfg.Events.Event(rs, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+err.Error())
			return err
		}
		c.loop.Wait(loop.KeyOf(rs), func() bool {
			now, ok := c.cfg.Views.Pods.Get(p.Namespace, p.Name)
			return !ok || now.UID != p.UID || now.DeletionTimestamp != nil
		})
		if err == nil {
			c.cfg.Events.Event(rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
		}
		return nil
	})
}

// writeStatus writes the status if it differs from what stands.
func (c *Controller) writeStatus(ctx context.Context, rs *appsv1.ReplicaSet, owned []*corev1.Pod, failed *failure) (recount time.Duration, err error) {
	want, recount := status(rs, owned, failed, time.Now())
	if equality.Semantic.DeepEqual(want, rs.Status) {
		return recount, nil
	}
	next := rs.DeepCopy()
	next.Status = want
	got, err := c.sets.UpdateStatus(ctx, next)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write status: %w", err)
	}
	c.loop.Wrote(loop.KeyOf(rs), c.cfg.Views.ReplicaSets, got.ResourceVersion)
	return recount, nil
}

// fromTemplate is a pod of the set.
func fromTemplate(rs *appsv1.ReplicaSet) *corev1.Pod {
	t := rs.Spec.Template.DeepCopy()
	prefix := rs.Name + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		prefix = rs.Name
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix, Namespace: rs.Namespace,
			Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(rs, kind)},
		},
		Spec: t.Spec,
	}
}
