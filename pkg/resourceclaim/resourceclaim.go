package resourceclaim

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Name returns the name of the claim that an entry of the pod's spec.resourceClaims stands
// for. made is false if it is to be made of a template and is not in the pod's status yet.
// The name is "" if the pod needs no claim for the entry.
func Name(pod *corev1.Pod, c *corev1.PodResourceClaim) (name string, made bool) {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName, true
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if s := &pod.Status.ResourceClaimStatuses[i]; s.Name == c.Name {
			if s.ResourceClaimName == nil {
				return "", true
			}
			return *s.ResourceClaimName, true
		}
	}
	return "", false
}

// CheckOwner returns an error if the claim was not made for the pod.
func CheckOwner(pod *corev1.Pod, claim *resourcev1.ResourceClaim) error {
	if claim.Namespace != pod.Namespace || !metav1.IsControlledBy(claim, pod) {
		return fmt.Errorf("ResourceClaim %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	}
	return nil
}

// Check returns an error if the claim that an entry stands for may not be used by the pod.
func Check(pod *corev1.Pod, c *corev1.PodResourceClaim, claim *resourcev1.ResourceClaim) error {
	if c.ResourceClaimTemplateName == nil {
		return nil
	}
	return CheckOwner(pod, claim)
}

// ReservedFor reports whether the claim is reserved for the pod.
func ReservedFor(claim *resourcev1.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool { return c.UID == pod })
}

// Full reports whether the claim cannot be reserved for another pod.
func Full(claim *resourcev1.ResourceClaim) bool {
	return len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize
}

// Reference returns the entry of status.reservedFor that stands for a pod.
func Reference(pod *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// OfPod reports whether an entry of status.reservedFor stands for a pod.
func OfPod(c resourcev1.ResourceClaimConsumerReference) bool {
	return c.APIGroup == "" && c.Resource == "pods"
}
