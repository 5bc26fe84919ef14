// Package volumerestrictions keeps a pod waiting while another one uses a claim with the
// access mode ReadWriteOncePod.
package volumerestrictions

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/volumebinding"
)

const reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"

// Plugin is upstream's plugin VolumeRestrictions.
type Plugin struct {
	claim func(namespace, name string) *corev1.PersistentVolumeClaim
}

// New returns the plugin. claim returns a claim, nil if it does not exist.
func New(claim func(namespace, name string) *corev1.PersistentVolumeClaim) Plugin {
	return Plugin{claim}
}

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "VolumeRestrictions" }

// Reads returns the namespace and the names of the pod's claims with the mode.
func (p Plugin) Reads(pod *snapshot.Pod) []any {
	names := p.exclusive(pod)
	if len(names) == 0 {
		return nil
	}
	return []any{pod.Namespace, names}
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event {
	return framework.PodGone | framework.VolumeChanged
}

// exclusive returns the names of the pod's claims with the mode.
func (p Plugin) exclusive(pod *snapshot.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		name := volumebinding.ClaimName(pod.Pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		if claim := p.claim(pod.Namespace, name); claim != nil && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			names = append(names, name)
		}
	}
	return names
}

// PreFilter skips pods without such claims.
func (p Plugin) PreFilter(pod *snapshot.Pod) framework.ClusterFilter {
	names := p.exclusive(pod)
	if len(names) == 0 {
		return nil
	}
	return &users{namespace: pod.Namespace, names: names, on: map[int]bool{}}
}

// users are the nodes, by row, with pods that use one of the claims.
type users struct {
	namespace string
	names     []string
	on        map[int]bool
}

// Update looks at the pods of a node.
func (u *users) Update(n snapshot.Node) {
	delete(u.on, n.Row())
	if !n.Exists() {
		return
	}
	for pod := range n.Pods() {
		if pod.Namespace == u.namespace && u.uses(pod.Pod) {
			u.on[n.Row()] = true
			return
		}
	}
}

// uses reports whether a pod uses one of the claims.
func (u *users) uses(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if name := volumebinding.ClaimName(pod, &pod.Spec.Volumes[i]); name != "" && slices.Contains(u.names, name) {
			return true
		}
	}
	return false
}

// Filter rejects all nodes while a pod uses one of the claims.
func (u *users) Filter(snapshot.Node) *framework.Status {
	if len(u.on) == 0 {
		return nil
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, reason)
}
