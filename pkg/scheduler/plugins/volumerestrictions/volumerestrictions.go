// Package volumerestrictions keeps a pod waiting while another one uses a claim with the
// access mode ReadWriteOncePod, and rejects nodes with a pod that uses the same iSCSI target.
package volumerestrictions

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/volumebinding"
)

const (
	reason   = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
	conflict = "node(s) had no available disk"
)

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

// Reads returns the namespace and the names of the pod's claims with the mode, and its
// iSCSI targets.
func (p Plugin) Reads(pod *snapshot.Pod) []any {
	names, targets := p.exclusive(pod), targetsOf(pod.Pod)
	if len(names) == 0 && len(targets) == 0 {
		return nil
	}
	return []any{pod.Namespace, names, targets}
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

// targetsOf returns the iSCSI targets of a pod's own volumes, and whether it only reads
// them.
func targetsOf(pod *corev1.Pod) (targets map[string]bool) {
	for i := range pod.Spec.Volumes {
		s := pod.Spec.Volumes[i].ISCSI
		if s == nil {
			continue
		}
		if targets == nil {
			targets = map[string]bool{}
		}
		reads, ok := targets[s.IQN]
		targets[s.IQN] = s.ReadOnly && (reads || !ok)
	}
	return targets
}

// PreFilter skips pods without such volumes.
func (p Plugin) PreFilter(pod *snapshot.Pod) framework.ClusterFilter {
	names, targets := p.exclusive(pod), targetsOf(pod.Pod)
	if len(names) == 0 && len(targets) == 0 {
		return nil
	}
	return &users{namespace: pod.Namespace, names: names, targets: targets, on: map[int]bool{}, conflicts: map[int]bool{}}
}

// users are the nodes, by row, with pods that use one of the claims or targets.
type users struct {
	namespace string
	names     []string
	targets   map[string]bool // whether the pod only reads them
	on        map[int]bool    // a pod uses one of the claims
	conflicts map[int]bool    // a pod uses one of the targets
}

// Update looks at the pods of a node.
func (u *users) Update(n snapshot.Node) {
	delete(u.on, n.Row())
	delete(u.conflicts, n.Row())
	if !n.Exists() {
		return
	}
	for pod := range n.Pods() {
		if pod.Namespace == u.namespace && u.uses(pod.Pod) {
			u.on[n.Row()] = true
		}
		if len(u.targets) > 0 && u.shares(pod.Pod) {
			u.conflicts[n.Row()] = true
		}
	}
}

// shares reports whether a pod uses one of the targets, unless both only read it.
func (u *users) shares(pod *corev1.Pod) bool {
	for iqn, reads := range targetsOf(pod) {
		if mine, ok := u.targets[iqn]; ok && !(mine && reads) {
			return true
		}
	}
	return false
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

// Filter rejects all nodes while a pod uses one of the claims, and the nodes whose pods use
// one of the targets. Preemption may evict these pods: on their node, where a trial without
// them finds that the claim is free.
func (u *users) Filter(n snapshot.Node) *framework.Status {
	switch {
	case len(u.on) > 0:
		return framework.NewStatus(framework.Unschedulable, reason)
	case u.conflicts[n.Row()]:
		return framework.NewStatus(framework.Unschedulable, conflict)
	}
	return nil
}
