package resources

import (
	"context"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cgroups is the cgroup hierarchy of pods: kubepods, QoS classes, pods.
type Cgroups interface {
	// Prepare creates the cgroup of all pods and the QoS classes. allocatable
	// limits all pods together; empty: no limit.
	Prepare(ctx context.Context, allocatable corev1.ResourceList) error
	// Ensure creates or updates a pod's cgroup and returns its name for the runtime.
	Ensure(ctx context.Context, pod *corev1.Pod) (parent string, err error)
	// Widen raises the limits of a pod's cgroup to those of pod and of from, which has
	// other resources, where these are higher.
	Widen(ctx context.Context, pod, from *corev1.Pod) error
	// Weigh sets the CPU weight of the burstable class for the pods on the node.
	Weigh(ctx context.Context, pods []*corev1.Pod) error
	// Processes returns the number of a pod's process ids; 0 if it is unknown.
	Processes(pod *corev1.Pod) int64
	// Remove removes a pod's cgroup in every class. A missing cgroup is not an error.
	Remove(ctx context.Context, uid types.UID) error
	// Abandoned returns the pods that have a cgroup without processes.
	Abandoned() ([]types.UID, error)
	// Unified returns the settings of cgroup v2 that all containers have: the OOM killer ends a
	// container as a whole, which gets no swap. Nil on cgroup v1.
	Unified() map[string]string
}

// None implements Cgroups without cgroups, for hosts that have none and for
// simulations. The runtime chooses the containers' cgroups.
type None struct{}

var _ Cgroups = None{}

func (None) Prepare(context.Context, corev1.ResourceList) error    { return nil }
func (None) Ensure(context.Context, *corev1.Pod) (string, error)   { return "", nil }
func (None) Widen(context.Context, *corev1.Pod, *corev1.Pod) error { return nil }
func (None) Weigh(context.Context, []*corev1.Pod) error            { return nil }
func (None) Processes(*corev1.Pod) int64                           { return 0 }
func (None) Remove(context.Context, types.UID) error               { return nil }
func (None) Abandoned() ([]types.UID, error)                       { return nil, nil }
func (None) Unified() map[string]string                            { return nil }

// The names in the hierarchy. They are upstream's.
const (
	rootName   = "kubepods"
	podPrefix  = "pod"
	burstable  = "burstable"
	bestEffort = "besteffort"
)

// class returns the directory of a QoS class below kubepods; "" for guaranteed pods.
func class(q corev1.PodQOSClass) string {
	switch q {
	case corev1.PodQOSBurstable:
		return burstable
	case corev1.PodQOSBestEffort:
		return bestEffort
	}
	return ""
}

func classes() []string { return []string{"", burstable, bestEffort} }

// place is a cgroup's position as a list of names: kubepods, burstable, pod<uid>.
type place []string

func placeOf(pod *corev1.Pod) place {
	return podPlace(class(QOS(pod)), pod.UID)
}

func podPlace(class string, uid types.UID) place {
	p := place{rootName}
	if class != "" {
		p = append(p, class)
	}
	return append(p, podPrefix+string(uid))
}

// dir returns the path of the cgroup for cgroupfs.
func (p place) dir(root string) string { return path.Join(append([]string{"/", root}, p...)...) }

// below returns the place below a root; each element of root is a level.
func (p place) below(root string) place {
	var out place
	for _, name := range strings.Split(root, "/") {
		if name != "" {
			out = append(out, name)
		}
	}
	return append(out, p...)
}

// slice returns the name of the systemd slice, which contains those of its parents.
func (p place) slice() string {
	return strings.Join(escaped(p), "-") + ".slice"
}

// sliceDir returns the path of the slice in the cgroup file system.
func (p place) sliceDir() string {
	dirs := []string{"/"}
	for i := range p {
		dirs = append(dirs, p[:i+1].slice())
	}
	return path.Join(dirs...)
}

// escaped replaces dashes, which separate levels in slice names, by underscores.
func escaped(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ReplaceAll(n, "-", "_")
	}
	return out
}

// uidOf returns the pod's uid from the name of its cgroup's directory.
func uidOf(name string) (types.UID, bool) {
	if s, ok := strings.CutSuffix(name, ".slice"); ok {
		i := strings.LastIndex(s, "-"+podPrefix)
		if i < 0 {
			return "", false
		}
		return types.UID(strings.ReplaceAll(s[i+1+len(podPrefix):], "_", "-")), true
	}
	uid, ok := strings.CutPrefix(name, podPrefix)
	return types.UID(uid), ok && uid != ""
}
