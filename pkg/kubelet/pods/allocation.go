package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
)

// allocationFile is the record of a pod's allocation in its directory.
const allocationFile = "resources.json"

// allocation is the resources that the node has granted to a pod, and those that its
// containers have.
type allocation struct {
	// Granted are the resources of the containers, by name. They change when the
	// node accepts a resize.
	Granted map[string]corev1.ResourceRequirements `json:"granted"`
	// Applied are the resources of containers that were resized, by container id.
	// All others have those with which they were created.
	Applied map[string]corev1.ResourceRequirements `json:"applied,omitempty"`
	// Restarting are the ids of containers that were stopped in order to be
	// created again with other resources or another image.
	Restarting []string `json:"restarting,omitempty"`
}

// granted returns the CPU and memory of a pod's containers by name.
func granted(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	out := map[string]corev1.ResourceRequirements{}
	for c := range podspec.Main(pod) {
		out[c.Name] = computeOf(&c.Resources)
	}
	return out
}

// computeOf returns the CPU and memory of r.
func computeOf(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	only := func(list corev1.ResourceList) corev1.ResourceList {
		var out corev1.ResourceList
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := list[name]; ok {
				if out == nil {
					out = corev1.ResourceList{}
				}
				out[name] = q
			}
		}
		return out
	}
	return corev1.ResourceRequirements{Requests: only(r.Requests), Limits: only(r.Limits)}
}

// sameCompute reports whether a and b, without other resources, are equal.
func sameCompute(a, b corev1.ResourceRequirements) bool {
	same := func(a, b corev1.ResourceList) bool {
		return maps.EqualFunc(a, b, func(x, y resourceQuantity) bool { return x.Cmp(y) == 0 })
	}
	return same(a.Requests, b.Requests) && same(a.Limits, b.Limits)
}

// with returns a pod whose containers have the granted resources: pod itself if it
// has them.
func (a *allocation) with(pod *corev1.Pod) *corev1.Pod {
	out := pod
	for i, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for j := range list {
			r, ok := a.Granted[list[j].Name]
			if !ok || sameCompute(r, computeOf(&list[j].Resources)) {
				continue
			}
			if out == pod {
				out = pod.DeepCopy()
			}
			c := &[][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers}[i][j]
			c.Resources.Requests = replaced(c.Resources.Requests, r.Requests)
			c.Resources.Limits = replaced(c.Resources.Limits, r.Limits)
		}
	}
	return out
}

// replaced returns list with the CPU and memory of by.
func replaced(list, by corev1.ResourceList) corev1.ResourceList {
	delete(list, corev1.ResourceCPU)
	delete(list, corev1.ResourceMemory)
	if list == nil && len(by) > 0 {
		list = corev1.ResourceList{}
	}
	maps.Copy(list, by)
	return list
}

// applied returns the resources that a container has; false if they are not known.
func (a *allocation) applied(c *container) (corev1.ResourceRequirements, bool) {
	if r, ok := a.Applied[c.id]; ok {
		return r, true
	}
	var r corev1.ResourceRequirements
	text := c.annotations[cri.AnnotationResources]
	return r, text != "" && json.Unmarshal([]byte(text), &r) == nil
}

// forget removes what the allocation says of containers that no longer exist.
func (a *allocation) forget(o observed) {
	gone := func(id string) bool { return o.byID(id) == nil }
	maps.DeleteFunc(a.Applied, func(id string, _ corev1.ResourceRequirements) bool { return gone(id) })
	a.Restarting = slices.DeleteFunc(a.Restarting, gone)
}

func (m *Manager) allocationPath(uid types.UID) string {
	return filepath.Join(m.podDir(uid), allocationFile)
}

// readAllocation returns the recorded allocation of a pod; nil if there is none.
func (m *Manager) readAllocation(uid types.UID) (*allocation, error) {
	data, err := os.ReadFile(m.allocationPath(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod's resources: %w", err)
	}
	a := &allocation{}
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("parse %s: %w", m.allocationPath(uid), err)
	}
	return a, nil
}

// writeAllocation records the allocation of a pod atomically.
func (m *Manager) writeAllocation(uid types.UID, a *allocation) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	path := m.allocationPath(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", data, 0o640); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
