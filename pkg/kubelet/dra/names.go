package dra

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// errNotCreated means that the controller has not created the claim of a template yet.
var errNotCreated = errors.New("ResourceClaim not created yet")

// claimName returns the name of the ResourceClaim of an entry of the pod's spec. It
// returns "" if the entry's template generated none.
func claimName(pod *corev1.Pod, entry *corev1.PodResourceClaim) (string, error) {
	if entry.ResourceClaimName != nil {
		return *entry.ResourceClaimName, nil
	}
	for i := range pod.Status.ResourceClaimStatuses {
		s := &pod.Status.ResourceClaimStatuses[i]
		switch {
		case s.Name != entry.Name:
			continue
		case s.ResourceClaimName == nil:
			return "", nil
		}
		return *s.ResourceClaimName, nil
	}
	return "", fmt.Errorf("pod claim %s: %w", entry.Name, errNotCreated)
}

// claimNames returns the names of the pod's ResourceClaims. That of extended resources has
// no entry in the spec.
func claimNames(pod *corev1.Pod) ([]string, error) {
	var out []string
	for i := range pod.Spec.ResourceClaims {
		name, err := claimName(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != "" {
			out = append(out, name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		out = append(out, s.ResourceClaimName)
	}
	return out, nil
}

// Uses reports whether a pod has claims.
func Uses(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// wish is a claim, or one request of it, whose devices a container gets.
type wish struct {
	claim   string // the ResourceClaim
	request string // "": all
	entry   string // in the pod's spec; "": an extended resource
}

// resource returns the name of the wish in the status of the container.
func (w *wish) resource() corev1.ResourceName {
	name := w.entry
	if name == "" {
		name = w.claim
	}
	if w.request != "" {
		name += "/" + w.request
	}
	return corev1.ResourceName("claim:" + name)
}

// wishes returns what a container gets.
func wishes(pod *corev1.Pod, c *corev1.Container) ([]wish, error) {
	var out []wish
	for _, want := range c.Resources.Claims {
		for i := range pod.Spec.ResourceClaims {
			entry := &pod.Spec.ResourceClaims[i]
			if entry.Name != want.Name {
				continue
			}
			name, err := claimName(pod, entry)
			if err != nil {
				return nil, err
			}
			if name != "" {
				out = append(out, wish{name, want.Request, entry.Name})
			}
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, r := range s.RequestMappings {
			if r.ContainerName == c.Name {
				out = append(out, wish{claim: s.ResourceClaimName, request: r.RequestName})
			}
		}
	}
	return out, nil
}
