package resourceclaim

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/resourceclaim"
)

// Spec describes the controller.
func Spec(workers int, m *Metrics) controller.Spec {
	return controller.Spec{
		Name: "resourceclaim-controller", Account: "resource-claim-controller", Component: "resource_claim", Workers: workers,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, m), nil },
	}
}

// reconciler holds both loops.
type reconciler struct {
	controller.Context
	metrics   *Metrics
	live      client.Resource[*corev1.Pod]
	pods      *informer.Informer[*corev1.Pod]
	claims    *informer.Informer[*resourcev1.ResourceClaim]
	templates *informer.Informer[*resourcev1.ResourceClaimTemplate]
	madeFor   informers.Owned[*resourcev1.ResourceClaim]

	byPod, byClaim *loop.Loop
	podWriter      controller.Writer[*corev1.Pod]               // for keys of byPod
	maker          controller.Writer[*resourcev1.ResourceClaim] // the same
	claimWriter    controller.Writer[*resourcev1.ResourceClaim] // for keys of byClaim
}

func build(c controller.Context, m *Metrics) *reconciler {
	r := &reconciler{
		Context: c, metrics: m, live: client.For[*corev1.Pod](c.Client),
		pods:      informers.For[*corev1.Pod](c.Informers),
		claims:    informers.For[*resourcev1.ResourceClaim](c.Informers),
		templates: informers.For[*resourcev1.ResourceClaimTemplate](c.Informers),
		madeFor:   informers.ByController[*resourcev1.ResourceClaim](c.Informers),
	}
	r.byPod = c.NewLoop("resource_claim_pod", 0, r.reconcilePod, r.pods, r.claims, r.templates)
	r.byClaim = c.NewLoop("resource_claim", 0, r.reconcileClaim, r.pods, r.claims)
	r.podWriter = controller.NewWriter(c, r.byPod, r.pods)
	r.maker = controller.NewWriter(c, r.byPod, r.claims)
	r.claimWriter = controller.NewWriter(c, r.byClaim, r.claims)
	r.wake()
	list := r.claims.List
	m.counts.list.Store(&list)
	return r
}

// wake says which changes wake which keys.
func (r *reconciler) wake() {
	byTemplate := informers.Index(r.pods, "resourceclaimtemplate", func(pod *corev1.Pod) (names []string) {
		for i := range pod.Spec.ResourceClaims {
			if name := pod.Spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
				names = append(names, pod.Namespace+"/"+*name)
			}
		}
		return names
	})
	reserved := informers.Index(r.claims, "reservedfor", func(claim *resourcev1.ResourceClaim) (uids []string) {
		for _, c := range claim.Status.ReservedFor {
			uids = append(uids, string(c.UID))
		}
		return uids
	})
	loop.WakeOn(r.byPod, r.pods, func(pod *corev1.Pod) []loop.Key {
		if len(pod.Spec.ResourceClaims) == 0 {
			return nil
		}
		return loop.Self(pod)
	})
	loop.WakeOn(r.byPod, r.templates, func(t *resourcev1.ResourceClaimTemplate) (keys []loop.Key) {
		for _, pod := range byTemplate(t.Namespace + "/" + t.Name) {
			keys = append(keys, loop.KeyOf(pod))
		}
		return keys
	})
	loop.WakeOn(r.byPod, r.claims, loop.Owner[*resourcev1.ResourceClaim]("Pod"))
	loop.WakeOn(r.byClaim, r.claims, loop.Self)
	loop.WakeOn(r.byClaim, r.pods, func(pod *corev1.Pod) (keys []loop.Key) {
		for _, claim := range append(reserved(string(pod.UID)), r.madeFor.By(pod.UID)...) {
			keys = append(keys, loop.KeyOf(claim))
		}
		return keys
	})
}

// Run runs both loops until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	defer r.metrics.counts.list.Store(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.byPod.Run(ctx) })
	g.Go(func() error { return r.byClaim.Run(ctx) })
	return g.Wait()
}

// done reports whether a pod will not use its claims, or not any more.
func done(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// owner returns the pod that a claim was made for; nil if it was not made for a pod.
func owner(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(claim)
	if ref == nil || ref.Kind != "Pod" || ref.APIVersion != "v1" {
		return nil
	}
	return ref
}

// entry returns the entry of spec.resourceClaims that a claim was made for.
func entry(pod *corev1.Pod, claim *resourcev1.ResourceClaim) *corev1.PodResourceClaim {
	for i := range pod.Spec.ResourceClaims {
		if c := &pod.Spec.ResourceClaims[i]; c.Name == claim.Annotations[resourcev1.PodResourceClaimAnnotation] && c.ResourceClaimTemplateName != nil {
			return c
		}
	}
	return nil
}

// surplus reports whether the pod uses another claim instead of this one, which was made for
// it. That happens if the response to a create was lost. get returns a claim of the pod's
// namespace, nil if it does not exist.
func surplus(pod *corev1.Pod, claim *resourcev1.ResourceClaim, get func(name string) *resourcev1.ResourceClaim) bool {
	c := entry(pod, claim)
	if c == nil {
		return false
	}
	name, made := resourceclaim.Name(pod, c)
	if !made || name == claim.Name {
		return false
	}
	used := get(name)
	return used != nil && resourceclaim.CheckOwner(pod, used) == nil
}
