package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// claimName returns the name of the claim of a template for the pod of an ordinal.
func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) string {
	return template.Name + "-" + set.Name + "-" + strconv.Itoa(ordinal)
}

// newClaim returns the claim of a template for a pod, which may not exist yet.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, pod *corev1.Pod) *corev1.PersistentVolumeClaim {
	claim := template.DeepCopy()
	ordinal, _ := ordinalOf(set, pod)
	claim.Name, claim.Namespace = claimName(set, template, ordinal), set.Namespace
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	claim.Status = corev1.PersistentVolumeClaimStatus{}
	claim.OwnerReferences = claimOwners(set, pod, claim.OwnerReferences)
	return claim
}

// claimOwners returns the owner references of a claim of pod, given those it has. The set
// or, if it is about to be scaled away, the pod controls the claim, as the retention policy
// demands. A claim that another object controls gets no owner.
func claimOwners(set *appsv1.StatefulSet, pod *corev1.Pod, have []metav1.OwnerReference) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(have), func(r metav1.OwnerReference) bool {
		return r.UID == set.UID || r.UID == pod.UID
	})
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil || slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }) {
		return refs
	}
	const del = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	switch _, stays := indexOf(set, pod); {
	case !stays && policy.WhenScaled == del:
		return append(refs, ownership.Reference(pod, podKind))
	case policy.WhenDeleted == del:
		return append(refs, ownership.Reference(set, kind))
	}
	return refs
}

// outlived reports whether a pod that no longer exists owns the claim, which the garbage
// collector is about to delete. pod has no UID if it does not exist yet.
func outlived(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == podKind.Kind && r.Name == pod.Name && r.UID != pod.UID
	})
}

// ensureClaims creates the missing claims of a pod, which may not exist yet. ok is false if
// a claim of a former pod is about to be deleted.
func (r *reconciler) ensureClaims(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) (ok bool, err error) {
	ordinal, _ := ordinalOf(set, pod)
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		claim, exists := r.claims.Get(set.Namespace, claimName(set, t, ordinal))
		switch {
		case !exists:
			claim = newClaim(set, t, pod)
			_, err := r.claimWriter.Create(ctx, loop.KeyOf(set), claim)
			r.event(set, "create", fmt.Sprintf("Claim %s Pod %s in StatefulSet %s", claim.Name, pod.Name, set.Name), "success", err)
			if err != nil {
				return false, fmt.Errorf("create claim %s: %w", claim.Name, err)
			}
		case outlived(claim, pod):
			return false, nil
		case claim.DeletionTimestamp != nil:
			return false, fmt.Errorf("pvc %s is being deleted", claim.Name)
		}
	}
	return true, nil
}

// keepClaims gives the claims of an existing pod their owners, and creates those that a
// pending pod lacks.
func (r *reconciler) keepClaims(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	ordinal, _ := ordinalOf(set, pod)
	if _, stays := indexOf(set, pod); stays && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
		if _, err := r.ensureClaims(ctx, set, pod); err != nil {
			return err
		}
	}
	for i := range set.Spec.VolumeClaimTemplates {
		claim, ok := r.claims.Get(set.Namespace, claimName(set, &set.Spec.VolumeClaimTemplates[i], ordinal))
		if !ok || claim.DeletionTimestamp != nil {
			continue
		}
		next := claim.DeepCopy()
		next.OwnerReferences = claimOwners(set, pod, claim.OwnerReferences)
		if equality.Semantic.DeepEqual(next.OwnerReferences, claim.OwnerReferences) {
			continue
		}
		if _, err := r.claimWriter.Update(ctx, loop.KeyOf(set), next); err != nil {
			return err
		}
	}
	return nil
}

// setsOf returns the keys of the sets that a claim may belong to, by its name.
func (r *reconciler) setsOf(claim *corev1.PersistentVolumeClaim) (keys []loop.Key) {
	for _, set := range r.sets.In(claim.Namespace) {
		for i := range set.Spec.VolumeClaimTemplates {
			if strings.HasPrefix(claim.Name, set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name+"-") {
				keys = append(keys, loop.KeyOf(set))
				break
			}
		}
	}
	return keys
}
