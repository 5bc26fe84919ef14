package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/devices"
)

// Devices gives containers the devices of device plugins.
type Devices interface {
	// Allocate gives a pod's containers the devices that they ask for and lack. It blocks
	// on the plugins. After an error the pod has no other devices than before.
	Allocate(ctx context.Context, pod *corev1.Pod) error
	// Short returns what a pod lacks of devices that it asks for; nil: nothing.
	Short(pod *corev1.Pod) *devices.ShortageError
	// Options prepares the devices of a container that is about to be created. It blocks on
	// the plugins.
	Options(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (devices.Options, error)
	// Release frees the devices of a pod whose containers have ended. Twice is fine.
	Release(pod types.UID)
	// Status returns the health of the devices that a container has; nil if it has none.
	Status(pod types.UID, container string) []corev1.ResourceStatus
	// Pods returns the pods that have devices.
	Pods() []types.UID
}

// How soon a pod asks again for devices that an ending pod has.
const (
	firstDeviceRetry = 100 * time.Millisecond
	lastDeviceRetry  = time.Second
)

// assignment is how far the allocation of CPUs and devices to a pod that is being admitted has
// come.
type assignment struct {
	placed  bool // it has its CPUs, and its devices are reserved
	done    bool
	refused *refusal // nil: the pod has what it asks for
}

// awaitsDevices reports whether a pod has to wait for devices of pods that have ended as far
// as the API knows. Then the worker asks again later.
func (w *worker) awaitsDevices() bool {
	if w.m.cfg.Devices == nil || w.assigned.placed {
		return false
	}
	short := w.m.cfg.Devices.Short(w.pod)
	if short == nil || !w.m.anyLeft(short.Holders) {
		w.retries.ok("devices")
		return false
	}
	w.again(w.retries.fail("devices", time.Now(), firstDeviceRetry, lastDeviceRetry))
	return true
}

// assignDevices has devices allocated to a pod that is being admitted. It returns false
// until that is done; then the worker is woken. A pod that has been on the node before
// keeps its devices.
func (w *worker) assignDevices() (r *refusal, done bool) {
	if w.m.cfg.Devices == nil || !w.observed.empty() || w.pod.Status.StartTime != nil {
		return nil, true
	}
	if w.assigned.done {
		return w.assigned.refused, true
	}
	if !w.retries.due("devices", time.Now()) {
		return nil, false
	}
	pod := w.pod
	w.job(w.startCtx, "allocate", func(ctx context.Context) func() {
		err := w.m.cfg.Devices.Allocate(ctx, pod)
		if ctx.Err() != nil {
			return nil // the pod is being deleted, which frees its devices
		}
		return func() { w.assigned = w.assignmentAfter(err) }
	})
	return nil, false
}

// assignmentAfter returns what the result of Allocate means. Devices of pods that only this
// node still has become free soon, and the scheduler cannot count them any more.
func (w *worker) assignmentAfter(err error) assignment {
	var short *devices.ShortageError
	switch {
	case err == nil:
		return assignment{placed: true, done: true}
	case errors.As(err, &short) && w.m.anyLeft(short.Holders):
		w.retries.fail("devices", time.Now(), firstDeviceRetry, lastDeviceRetry)
		return w.assigned
	}
	return assignment{done: true, refused: &refusal{"UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}}
}

// anyLeft reports whether one of the pods has ended as far as the API and the scheduler know,
// or is not known yet.
func (m *Manager) anyLeft(pods []types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(pods, func(uid types.UID) bool {
		w := m.workers[uid]
		if w == nil {
			return true
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.removed || finalPhase(w.desired.Status.Phase)
	})
}

// releaseDevices frees the devices of a pod that has ended.
func (m *Manager) releaseDevices(uid types.UID) {
	if m.cfg.Devices != nil {
		m.cfg.Devices.Release(uid)
	}
}

// deviceHealth returns the health of a container's devices, for its status.
func (w *worker) deviceHealth(c *corev1.Container) (out []corev1.ResourceStatus) {
	if w.m.cfg.Devices != nil {
		out = w.m.cfg.Devices.Status(w.uid, c.Name)
	}
	if w.m.cfg.Claims != nil && usesClaims(w.pod) {
		out = append(out, w.m.cfg.Claims.Health(w.pod, c)...)
	}
	return out
}

// Wake makes the status of pods show the present health of their devices.
func (m *Manager) Wake(pods []types.UID) {
	for _, uid := range pods {
		m.wake(uid)
	}
}

// deviceOptions prepares the devices of a container and returns how it gets them.
func (cs *containers) deviceOptions(ctx context.Context, spec *corev1.Container) (devices.Options, error) {
	if cs.m.cfg.Devices == nil {
		return devices.Options{}, nil
	}
	return cs.m.cfg.Devices.Options(ctx, cs.pod, spec)
}

// addDevices adds options, but for the variables, to a configuration. The pod's volumes are
// mounted over the mounts of its devices. Plugins cannot set the kubelet's own annotations:
// it would run a preStop hook that the pod does not have.
func addDevices(c *runtimeapi.ContainerConfig, o *devices.Options) {
	c.Mounts = slices.Concat(o.Mounts, c.Mounts)
	c.Devices = slices.Concat(o.Devices, c.Devices)
	c.CDIDevices = append(c.CDIDevices, o.CDI...)
	for k, v := range o.Annotations {
		if !cri.OwnAnnotation(k) {
			c.Annotations[k] = v
		}
	}
}
