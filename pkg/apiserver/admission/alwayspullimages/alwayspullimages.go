// Package alwayspullimages is the admission plugin AlwaysPullImages: every
// image of a new pod is pulled with the pod's own credentials, so that the pod
// cannot use another tenant's private image that the node has cached.
package alwayspullimages

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin. As upstream, an update that adds no image may keep
// its pull policies.
func New(admission.Host) admission.Plugin {
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Resource:   corev1.Resource("pods"),
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			for _, i := range newImages(a) {
				*i.policy = corev1.PullAlways
			}
			return nil
		},
		Validate: func(_ context.Context, a *admission.Attributes) error {
			for _, i := range newImages(a) {
				if *i.policy != corev1.PullAlways {
					return admission.Forbidden(a, "%w", field.NotSupported(i.path, *i.policy, []corev1.PullPolicy{corev1.PullAlways}))
				}
			}
			return nil
		},
	}
}

// image is an image that a pod uses, with the field of its pull policy.
type image struct {
	name   string
	path   *field.Path
	policy *corev1.PullPolicy
}

// newImages returns the images of the pod; none if it is updated and had them
// all before.
func newImages(a *admission.Attributes) []image {
	list := images(&a.Object.(*corev1.Pod).Spec)
	old, ok := a.Old.(*corev1.Pod)
	if !ok {
		return list
	}
	before := images(&old.Spec)
	had := func(i image) bool { return slices.ContainsFunc(before, func(b image) bool { return b.name == i.name }) }
	if slices.ContainsFunc(list, func(i image) bool { return !had(i) }) {
		return list
	}
	return nil
}

func images(spec *corev1.PodSpec) []image {
	var out []image
	path := field.NewPath("spec")
	add := func(path *field.Path, c *corev1.Container) {
		out = append(out, image{c.Image, path.Child("imagePullPolicy"), &c.ImagePullPolicy})
	}
	for i := range spec.InitContainers {
		add(path.Child("initContainers").Index(i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		add(path.Child("containers").Index(i), &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		add(path.Child("ephemeralContainers").Index(i), (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			out = append(out, image{v.Reference, path.Child("volumes").Index(i).Child("image", "pullPolicy"), &v.PullPolicy})
		}
	}
	return out
}
