package podspec

import corev1 "k8s.io/api/core/v1"

// The annotations of static pods, which are upstream's: where the kubelet has the pod from,
// the hash by which its mirror is recognised, and when it was first seen.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	HashAnnotation   = "kubernetes.io/config.hash"
	SeenAnnotation   = "kubernetes.io/config.seen"
)

// The values of SourceAnnotation.
const (
	FileSource = "file"
	HTTPSource = "http"
)

// Static reports whether the pod is from a manifest of the node, not from the API.
func Static(pod *corev1.Pod) bool { return StaticSource(pod.Annotations) }

// StaticSource reports whether the annotations are those of a static pod.
func StaticSource(annotations map[string]string) bool {
	s := annotations[SourceAnnotation]
	return s == FileSource || s == HTTPSource
}
