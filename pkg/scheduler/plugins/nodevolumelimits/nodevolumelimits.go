// Package nodevolumelimits keeps pods from nodes that cannot attach their volumes as well:
// a CSI driver may limit how many volumes a node has.
package nodevolumelimits

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/volumebinding"
)

const reason = "node(s) exceed max volume count"

// Storage returns objects, nil if they do not exist.
type Storage interface {
	Claim(namespace, name string) *corev1.PersistentVolumeClaim
	Volume(name string) *corev1.PersistentVolume
	Class(name string) *storagev1.StorageClass
}

// Plugin is upstream's plugin NodeVolumeLimits. The limits are those of the CSINodes. It is
// safe for concurrent use.
type Plugin struct {
	storage Storage

	mu       sync.Mutex
	limits   map[string]map[string]int32  // by node and driver
	attached map[string]map[string]string // persistent volumes by node and VolumeAttachment
	version  int                          // of limits and attached: cached answers depend on it
}

// New returns the plugin. The scheduler tells it of CSINodes and VolumeAttachments.
func New(s Storage) *Plugin {
	return &Plugin{storage: s, limits: map[string]map[string]int32{}, attached: map[string]map[string]string{}}
}

// Name is upstream's name of the plugin.
func (*Plugin) Name() string { return "NodeVolumeLimits" }

// OnCSINode records a change of a CSINode.
func (p *Plugin) OnCSINode(old, new *storagev1.CSINode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, limits := "", map[string]int32{}
	if new == nil {
		name = old.Name
	} else {
		name = new.Name
		for _, d := range new.Spec.Drivers {
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				limits[d.Name] = *d.Allocatable.Count
			}
		}
	}
	if maps.Equal(p.limits[name], limits) {
		return
	}
	p.limits[name] = limits
	if len(limits) == 0 {
		delete(p.limits, name)
	}
	p.version++
}

// OnAttachment records a change of a VolumeAttachment. It reports whether the change may let a pod
// fit.
func (p *Plugin) OnAttachment(old, new *storagev1.VolumeAttachment) (helps bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := cmp.Or(new, old)
	node, volume := a.Spec.NodeName, a.Spec.Source.PersistentVolumeName
	if volume == nil || old != nil && new != nil { // only the status changes
		return false
	}
	if new == nil {
		delete(p.attached[node], old.Name)
		if len(p.attached[node]) == 0 {
			delete(p.attached, node)
		}
	} else {
		if p.attached[node] == nil {
			p.attached[node] = map[string]string{}
		}
		p.attached[node][new.Name] = *volume
	}
	_, limited := p.limits[node][a.Spec.Attacher]
	if limited {
		p.version++
	}
	return limited && new == nil
}

// addAttached adds the volumes that are attached to a node, also those that no pod of it uses any
// more.
func (p *Plugin) addAttached(used map[disk]bool, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, volume := range p.attached[node] {
		if pv := p.storage.Volume(volume); pv != nil && pv.Spec.CSI != nil {
			used[disk{pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle}] = true
		}
	}
}

// disk is a volume of a driver. A claim whose volume is not provisioned yet counts too.
type disk struct{ Driver, Handle string }

// Reads returns the pod's volumes, and which limits they are compared with.
func (p *Plugin) Reads(pod *snapshot.Pod) []any {
	disks := p.disks(pod)
	if len(disks) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return []any{disks, p.version}
}

// EventsToRegister returns the events after which a rejected pod may fit.
func (*Plugin) EventsToRegister() framework.Event {
	return framework.NodeAdded | framework.PodGone | framework.VolumeChanged
}

// disks returns the volumes of CSI drivers that a pod claims, sorted.
func (p *Plugin) disks(pod *snapshot.Pod) []disk {
	var out []disk
	for i := range pod.Spec.Volumes {
		claim := p.storage.Claim(pod.Namespace, volumebinding.ClaimName(pod.Pod, &pod.Spec.Volumes[i]))
		if d, ok := p.disk(claim); ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

func (p *Plugin) disk(claim *corev1.PersistentVolumeClaim) (disk, bool) {
	if claim == nil {
		return disk{}, false
	}
	if claim.Spec.VolumeName != "" {
		pv := p.storage.Volume(claim.Spec.VolumeName)
		if pv == nil || pv.Spec.CSI == nil {
			return disk{}, false
		}
		return disk{pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle}, true
	}
	class := p.storage.Class(volumebinding.ClassOf(claim))
	if class == nil || class.Provisioner == volumebinding.NoProvisioner {
		return disk{}, false
	}
	return disk{class.Provisioner, "claim " + claim.Namespace + "/" + claim.Name}, true
}

// PreFilter skips pods without such volumes.
func (p *Plugin) PreFilter(pod *snapshot.Pod) framework.NodeFilter {
	wanted := p.disks(pod)
	if len(wanted) == 0 {
		return nil
	}
	return func(n snapshot.Node) *framework.Status {
		p.mu.Lock()
		limits := p.limits[n.Name()] // never changed, only replaced
		p.mu.Unlock()
		if !slices.ContainsFunc(wanted, func(d disk) bool { _, limited := limits[d.Driver]; return limited }) {
			return nil
		}
		used := map[disk]bool{}
		for other := range n.Pods() {
			for _, d := range p.disks(other) {
				used[d] = true
			}
		}
		p.addAttached(used, n.Name())
		if !fits(wanted, used, limits) {
			return framework.NewStatus(framework.Unschedulable, reason)
		}
		return nil
	}
}

// fits reports whether a node with the volumes of used can have those of wanted as well.
// Drivers of which the pod needs no further volume do not matter.
func fits(wanted []disk, used map[disk]bool, limits map[string]int32) bool {
	counts, more := map[string]int32{}, map[string]int32{}
	for d := range used {
		counts[d.Driver]++
	}
	for _, d := range wanted {
		if !used[d] {
			more[d.Driver]++
		}
	}
	for driver, n := range more {
		if limit, limited := limits[driver]; limited && counts[driver]+n > limit {
			return false
		}
	}
	return true
}
