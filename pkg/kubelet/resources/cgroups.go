package resources

import (
	"context"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cgroups is the hierarchy pods live in: QoS classes, below them pods.
type Cgroups interface {
	// Prepare makes the root of all pods and the QoS classes. allocatable is
	// what all pods together may have; empty: no bound.
	Prepare(ctx context.Context, allocatable corev1.ResourceList) error
	// Ensure makes a pod's cgroup and gives the runtime's name of it.
	Ensure(ctx context.Context, pod *corev1.Pod) (parent string, err error)
	// Weigh sets the weight of the burstable class by the pods on the node.
	Weigh(ctx context.Context, pods []*corev1.Pod) error
	// Processes counts the process ids that a pod has; 0 if that is not known.
	Processes(pod *corev1.Pod) int64
	// Remove ends a pod's cgroup, wherever it is. An absent one is fine.
	Remove(ctx context.Context, uid types.UID) error
	// Abandoned lists the pods that have a cgroup without any process in it.
	Abandoned() ([]types.UID, error)
	// Unified says that the host has cgroup v2.
	Unified() bool
}

// None is for hosts without cgroups, and for simulations: the runtime puts
// containers where it likes, with their own limits.
type None struct{}

var _ Cgroups = None{}

func (None) Prepare(context.Context, corev1.ResourceList) error  { return nil }
func (None) Ensure(context.Context, *corev1.Pod) (string, error) { return "", nil }
func (None) Weigh(context.Context, []*corev1.Pod) error          { return nil }
func (None) Processes(*corev1.Pod) int64                         { return 0 }
func (None) Remove(context.Context, types.UID) error             { return nil }
func (None) Abandoned() ([]types.UID, error)                     { return nil, nil }
func (None) Unified() bool                                       { return false }

// The names in the hierarchy, upstream's.
const (
	rootName   = "kubepods"
	podPrefix  = "pod"
	burstable  = "burstable"
	bestEffort = "besteffort"
)

// class is the directory of a QoS class below kubepods; guaranteed pods have none.
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

// dir is the place as cgroupfs has it.
func (p place) dir(root string) string { return path.Join(append([]string{"/", root}, p...)...) }

// below puts the place under a root, whose names are steps like any other.
func (p place) below(root string) place {
	var out place
	for _, name := range strings.Split(root, "/") {
		if name != "" {
			out = append(out, name)
		}
	}
	return append(out, p...)
}

// slice is the place as systemd has it: each unit's name spells out its parents.
func (p place) slice() string {
	return strings.Join(escaped(p), "-") + ".slice"
}

// sliceDir is where systemd puts the slice in the file system.
func (p place) sliceDir() string {
	dirs := []string{"/"}
	for i := range p {
		dirs = append(dirs, p[:i+1].slice())
	}
	return path.Join(dirs...)
}

// escaped turns dashes, which systemd reads as steps in the tree, into underscores.
func escaped(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ReplaceAll(n, "-", "_")
	}
	return out
}

// uidOf reads a pod's uid back from the name of its cgroup's directory.
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
