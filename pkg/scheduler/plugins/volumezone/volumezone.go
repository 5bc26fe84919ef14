// Package volumezone keeps pods from nodes that are in another zone or region than the
// labels of their volumes say.
package volumezone

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/volumebinding"
)

const reason = "node(s) had no available volume zone"

// Storage returns objects, nil if they do not exist.
type Storage interface {
	Claim(namespace, name string) *corev1.PersistentVolumeClaim
	Volume(name string) *corev1.PersistentVolume
}

// Plugin is upstream's plugin VolumeZone.
type Plugin struct{ storage Storage }

// New returns the plugin.
func New(s Storage) Plugin { return Plugin{s} }

// Name is upstream's name of the plugin.
func (Plugin) Name() string { return "VolumeZone" }

// labels are the labels that tell a zone or a region, with their older names.
func labels() [][2]string {
	return [][2]string{
		{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone},
		{corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion},
	}
}

// place is where a volume is: a label of nodes and its possible values.
type place struct {
	Key, Older string
	Values     []string
}

// Reads returns where the pod's volumes are.
func (p Plugin) Reads(pod *snapshot.Pod) []any {
	if places := p.places(pod); len(places) > 0 {
		return []any{places}
	}
	return nil
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (Plugin) EventsToRegister() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.VolumeChanged
}

func (p Plugin) places(pod *snapshot.Pod) (out []place) {
	for i := range pod.Spec.Volumes {
		claim := p.storage.Claim(pod.Namespace, volumebinding.ClaimName(pod.Pod, &pod.Spec.Volumes[i]))
		if claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		if pv := p.storage.Volume(claim.Spec.VolumeName); pv != nil {
			out = append(out, placesOf(pv)...)
		}
	}
	return out
}

// placesOf returns where a volume is. A label of a volume may have several values,
// separated by "__".
func placesOf(pv *corev1.PersistentVolume) (out []place) {
	for _, names := range labels() {
		for _, name := range names {
			if value, ok := pv.Labels[name]; ok {
				out = append(out, place{names[0], names[1], strings.Split(value, "__")})
			}
		}
	}
	return out
}

// PreFilter skips pods whose volumes may be anywhere.
func (p Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	places := p.places(pod)
	if len(places) == 0 {
		return nil
	}
	return func(n snapshot.Node) *framework.Status {
		if reaches(n.Labels(), places) {
			return nil
		}
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, reason)
	}
}

// reaches reports whether a node with these labels is where all volumes are. As upstream,
// a node without any such label is everywhere.
func reaches(node map[string]string, places []place) bool {
	anywhere := true
	for _, names := range labels() {
		for _, name := range names {
			if _, ok := node[name]; ok {
				anywhere = false
			}
		}
	}
	if anywhere {
		return true
	}
	for _, p := range places {
		value, ok := node[p.Key]
		if !ok {
			value, ok = node[p.Older]
		}
		if !ok || !slices.Contains(p.Values, value) {
			return false
		}
	}
	return true
}
