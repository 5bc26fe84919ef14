package dra

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Devices returns the CDI ids of the devices that a container of the pod gets, each once.
// It fails if a claim has not been prepared for the pod.
func (m *Manager) Devices(pod *corev1.Pod, c *corev1.Container) ([]string, error) {
	list, err := wishes(pod, c)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, w := range list {
		held := m.findLocked(pod, w.claim)
		if held == nil || !held.prepared() {
			return nil, fmt.Errorf("ResourceClaim %s has not been prepared for the pod", w.claim)
		}
		for _, d := range held.devices(w.request) {
			for _, id := range d.CDI {
				if !slices.Contains(out, id) {
					out = append(out, id)
				}
			}
		}
	}
	return out, nil
}

// driven is a device and its driver.
type driven struct {
	driver string
	*device
}

// devices returns the prepared devices for a request of the claim; "": for all.
func (c *claim) devices(request string) []driven {
	var out []driven
	for _, driver := range slices.Sorted(maps.Keys(c.Drivers)) {
		list := c.Drivers[driver].Devices
		for i := range list {
			if list[i].serves(request) {
				out = append(out, driven{driver, &list[i]})
			}
		}
	}
	return out
}

// DynamicResources returns the claims of a container with their devices, as the pod
// resources API lists them. It leaves out claims that are not prepared.
func (m *Manager) DynamicResources(pod *corev1.Pod, c *corev1.Container) []*podresources.DynamicResource {
	list, err := wishes(pod, c)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*podresources.DynamicResource
	for _, w := range list {
		held := m.findLocked(pod, w.claim)
		if held == nil || !held.prepared() {
			continue
		}
		r := &podresources.DynamicResource{ClaimName: held.Name, ClaimNamespace: held.Namespace}
		for _, d := range held.devices(w.request) {
			r.ClaimResources = append(r.ClaimResources, d.resource())
		}
		out = append(out, r)
	}
	return out
}

func (d driven) resource() *podresources.ClaimResource {
	out := &podresources.ClaimResource{DriverName: d.driver, PoolName: d.Pool, DeviceName: d.Name}
	if d.Share != "" {
		out.ShareId = &d.Share
	}
	for _, id := range d.CDI {
		out.CdiDevices = append(out.CdiDevices, &podresources.CDIDevice{Name: id})
	}
	return out
}
