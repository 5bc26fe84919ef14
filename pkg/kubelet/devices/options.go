package devices

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Options are what gives a container its devices.
type Options struct {
	Envs        []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	Annotations map[string]string
	CDI         []*runtimeapi.CDIDevice
}

// Options prepares the devices of a container that is about to be created, and returns how
// it gets them; the zero value if it has none. A container that lacks devices gets them: the
// plugin may have registered after the pod was admitted, or the checkpoint was lost. Options
// blocks on the plugins; see Allocate.
func (m *Manager) Options(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (Options, error) {
	if m.lacks(pod, c) {
		if err := m.Allocate(ctx, pod); err != nil {
			return Options{}, err
		}
	}
	m.mu.Lock()
	grants := maps.Clone(m.pods[pod.UID][c.Name])
	m.mu.Unlock()
	out := merger{log: m.cfg.Log.With("pod", pod.Namespace+"/"+pod.Name, "container", c.Name)}
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		g := grants[name]
		if g.response == nil {
			continue // its plugin is gone
		}
		if err := m.preStart(ctx, name, g); err != nil {
			return Options{}, err
		}
		out.add(g.response)
	}
	return out.Options, nil
}

// lacks reports whether a container asks for devices of a plugin that it does not have.
func (m *Manager) lacks(pod *corev1.Pod, c *corev1.Container) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, q := range limits(pod, c) {
		if q.Sign() > 0 && m.offeredLocked(string(name)) != nil {
			if g := m.pods[pod.UID][c.Name][string(name)]; g == nil || g.response == nil {
				return true
			}
		}
	}
	return false
}

// preStart calls the plugin if it wants to know of each start of a container.
func (m *Manager) preStart(ctx context.Context, resource string, g *grant) error {
	m.mu.Lock()
	p := m.newest[resource]
	m.mu.Unlock()
	switch {
	case p != nil && p.options.GetPreStartRequired():
		return p.preStart(ctx, g.ids())
	case p == nil && g.preStart:
		return fmt.Errorf("endpoint of device plugin %s has been stopped", resource)
	}
	return nil
}

// merger adds up the answers of plugins. What an earlier one has set, a later one does not
// change.
type merger struct {
	Options
	log  *slog.Logger
	seen map[string]string // value by kind and key
}

func (o *merger) add(r *api.ContainerAllocateResponse) {
	for _, k := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		if o.unset("environment variable", k, r.Envs[k]) {
			o.Envs = append(o.Envs, &runtimeapi.KeyValue{Key: k, Value: []byte(r.Envs[k])})
		}
	}
	for _, m := range r.GetMounts() {
		if m != nil && o.unset("mount", m.ContainerPath, m.HostPath) {
			o.Mounts = append(o.Mounts, &runtimeapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly})
		}
	}
	for _, d := range r.GetDevices() {
		if d != nil && o.unset("device", d.ContainerPath, d.HostPath) {
			o.Devices = append(o.Devices, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
		}
	}
	for k, v := range r.GetAnnotations() {
		if o.unset("annotation", k, v) {
			if o.Annotations == nil {
				o.Annotations = map[string]string{}
			}
			o.Annotations[k] = v
		}
	}
	for _, d := range r.GetCdiDevices() {
		if d != nil && o.unset("CDI device", d.Name, "") {
			o.CDI = append(o.CDI, &runtimeapi.CDIDevice{Name: d.Name})
		}
	}
}

// unset reports whether nothing has been set yet for a key, and remembers it.
func (o *merger) unset(kind, key, value string) bool {
	if o.seen == nil {
		o.seen = map[string]string{}
	}
	before, set := o.seen[kind+" "+key]
	if set && before != value {
		o.log.Warn("device plugins disagree", "about", kind, "key", clip(key), "used", clip(before), "ignored", clip(value))
	}
	if !set {
		o.seen[kind+" "+key] = value
	}
	return !set
}
