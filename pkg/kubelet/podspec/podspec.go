// Package podspec finds the containers of a pod and tells static pods from others.
package podspec

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Containers yields the containers of the pod's spec: init, app and ephemeral
// containers, in this order. The pointers are into the spec.
func Containers(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if !yield((*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Container returns the container with the name; nil if there is none.
func Container(pod *corev1.Pod, name string) *corev1.Container {
	return Find(pod, func(c *corev1.Container) bool { return c.Name == name })
}

// Find returns the first container for which is returns true; nil if there is none.
func Find(pod *corev1.Pod, is func(*corev1.Container) bool) *corev1.Container {
	for c := range Containers(pod) {
		if is(c) {
			return c
		}
	}
	return nil
}

// ImageVolumes returns the volumes of the pod that the container mounts and whose content
// is an image. The pointers are into the spec.
func ImageVolumes(pod *corev1.Pod, c *corev1.Container) []*corev1.Volume {
	var out []*corev1.Volume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) {
			out = append(out, v)
		}
	}
	return out
}

// Main yields the containers that run as long as the pod does: sidecars and app
// containers. The pointers are into the spec.
func Main(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; Sidecar(c) && !yield(c) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

// Sidecar reports whether an init container is a sidecar: it is started in the order
// of the init containers, runs beside the app containers and ends after them.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// Ephemeral returns the ephemeral container with the name; nil if there is none.
func Ephemeral(pod *corev1.Pod, name string) *corev1.EphemeralContainer {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c
		}
	}
	return nil
}
