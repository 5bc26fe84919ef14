package resourceclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/pods"
	"podium/pkg/resourceclaim"
)

// reconcilePod makes the claims of a pod. A pod that was bound without the scheduler gets
// its claims reserved, too.
func (r *reconciler) reconcilePod(ctx context.Context, key loop.Key) (loop.Result, error) {
	pod, ok := r.pods.Get(key.Namespace, key.Name)
	if !ok || !pods.Active(pod) {
		return loop.Done, nil
	}
	names := map[string]string{} // of claims, by entry, that the status lacks
	var errs []error
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		name, err := r.ensure(ctx, key, pod, c)
		if err != nil && !controller.NamespaceTerminating(err) {
			r.Events.Eventf(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", c.Name, err)
		}
		if name != "" {
			names[c.Name] = name
		}
		errs = append(errs, err)
	}
	errs = append(errs, r.name(ctx, key, pod, names))
	if pod.Spec.NodeName != "" {
		errs = append(errs, r.reserve(ctx, key, pod))
	}
	return loop.Done, errors.Join(errs...)
}

// ensure creates the claim that an entry stands for, unless it exists. It returns the name
// if the pod's status does not have it.
func (r *reconciler) ensure(ctx context.Context, key loop.Key, pod *corev1.Pod, c *corev1.PodResourceClaim) (string, error) {
	if c.ResourceClaimTemplateName == nil {
		return "", nil
	}
	name, made := resourceclaim.Name(pod, c)
	if made && name == "" {
		return "", nil // the pod needs none
	}
	if claim, ok := r.claims.Get(pod.Namespace, name); made && ok {
		return "", resourceclaim.CheckOwner(pod, claim)
	}
	if found := unnamed(pod, c, r.madeFor.By(pod.UID)); found != nil {
		return found.Name, nil
	}
	template, ok := r.templates.Get(pod.Namespace, *c.ResourceClaimTemplateName)
	if !ok {
		return "", fmt.Errorf("resource claim template %q: not found", *c.ResourceClaimTemplateName)
	}
	claim, err := r.maker.Create(ctx, key, newClaim(pod, c, template))
	r.metrics.created(&resourcev1.ResourceClaim{Spec: template.Spec.Spec}, err)
	if err != nil {
		return "", fmt.Errorf("create ResourceClaim: %w", err)
	}
	return claim.Name, nil
}

// unnamed returns the first claim that was made for an entry, nil if there is none: the
// controller may have ended before it named the claim in the pod's status.
func unnamed(pod *corev1.Pod, c *corev1.PodResourceClaim, made []*resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	var fit []*resourcev1.ResourceClaim
	for _, claim := range made {
		if claim.DeletionTimestamp == nil && resourceclaim.CheckOwner(pod, claim) == nil && claim.Annotations[resourcev1.PodResourceClaimAnnotation] == c.Name {
			fit = append(fit, claim)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return slices.MinFunc(fit, func(a, b *resourcev1.ResourceClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// maxGenerated is the longest prefix to which the server appends what makes a name unique.
const maxGenerated = 248

// newClaim returns the claim of an entry. Its name is generated: a claim of that name may
// exist already, for an earlier pod of the same name.
func newClaim(pod *corev1.Pod, c *corev1.PodResourceClaim, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	t = t.DeepCopy()
	annotations := t.Spec.Annotations
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = c.Name
	base, suffix := pod.Name, "-"+c.Name+"-"
	if most := maxGenerated - len(suffix); len(base) > most {
		base = base[:most]
	}
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: base + suffix, Labels: t.Spec.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: t.Spec.Spec,
	}
}

// name records the names of claims in the pod's status.
func (r *reconciler) name(ctx context.Context, key loop.Key, pod *corev1.Pod, names map[string]string) error {
	if len(names) == 0 {
		return nil
	}
	var list []corev1.PodResourceClaimStatus
	for entry, claim := range names {
		list = append(list, corev1.PodResourceClaimStatus{Name: entry, ResourceClaimName: &claim})
	}
	slices.SortFunc(list, func(a, b corev1.PodResourceClaimStatus) int { return cmp.Compare(a.Name, b.Name) })
	_, err := r.podWriter.Patch(ctx, key, pod, types.StrategicMergePatchType, map[string]any{
		"status": map[string]any{"resourceClaimStatuses": list},
	}, "status")
	return err
}

// reserve reserves the allocated claims of a pod on a node. The scheduler has done that
// already unless the pod was bound without it.
func (r *reconciler) reserve(ctx context.Context, key loop.Key, pod *corev1.Pod) error {
	var errs []error
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		name, _ := resourceclaim.Name(pod, c)
		claim, ok := r.claims.Get(pod.Namespace, name)
		if !ok || resourceclaim.Check(pod, c, claim) != nil || claim.Status.Allocation == nil || claim.DeletionTimestamp != nil ||
			resourceclaim.ReservedFor(claim, pod.UID) || resourceclaim.Full(claim) {
			continue
		}
		claim = claim.DeepCopy()
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceclaim.Reference(pod))
		_, err := r.maker.UpdateStatus(ctx, key, claim)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
