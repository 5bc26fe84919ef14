package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/env"
	"podium/pkg/kubelet/podspec"
)

// configs are the configurations that CreateContainer needs.
type configs struct {
	container *runtimeapi.ContainerConfig
	sandbox   *runtimeapi.PodSandboxConfig
}

// containerConfig returns the configuration of one container and its sandbox. It
// writes the files that the container mounts.
func (cs *containers) containerConfig(ctx context.Context, s start, ids imageIDs) (configs, error) {
	m, pod, spec := cs.m, cs.withAddresses(), s.spec
	if cs.parent == "" {
		var err error
		if cs.parent, err = m.cfg.Cgroups.Ensure(ctx, pod); err != nil {
			return configs{}, err
		}
	}
	sandboxConfig, err := m.sandboxConfig(pod, cs.observed.current().attempt, cs.parent)
	if err != nil {
		return configs{}, err
	}
	vars, err := m.environment(ctx, pod, spec)
	if err != nil {
		return configs{}, err
	}
	given, err := cs.deviceOptions(ctx, spec)
	if err != nil {
		return configs{}, err
	}
	vars = slices.Concat(given.Envs, vars) // of two with one name, the last counts
	if len(ids.volumes) > 0 {
		if err := m.checkImageVolumes(ctx); err != nil {
			return configs{}, err
		}
	}
	mounts, err := cs.containerMounts(ctx, pod, s, vars, ids)
	if err != nil {
		return configs{}, err
	}
	devices, err := cs.devices(spec)
	if err != nil {
		return configs{}, err
	}
	target, err := cs.target(spec.Name)
	if err != nil {
		return configs{}, err
	}
	security, err := m.security(ctx, pod, spec, ids.container, target)
	if err != nil {
		return configs{}, err
	}
	mapIDs(mounts, security.NamespaceOptions.UsernsOptions)
	c := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: spec.Name, Attempt: uint32(s.attempt)},
		Image:       &runtimeapi.ImageSpec{Image: ids.container, UserSpecifiedImage: spec.Image},
		Command:     env.Expand(spec.Command, vars),
		Args:        env.Expand(spec.Args, vars),
		WorkingDir:  spec.WorkingDir,
		Envs:        vars,
		Mounts:      mounts,
		Devices:     devices,
		Labels:      containerLabels(pod, spec),
		Annotations: containerAnnotations(pod, s),
		LogPath:     path.Join(spec.Name, strconv.Itoa(int(s.attempt))+".log"),
		Stdin:       spec.Stdin,
		StdinOnce:   spec.StdinOnce,
		Tty:         spec.TTY,
		StopSignal:  stopSignal(spec),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       m.containerResources(pod, spec),
			SecurityContext: security,
		},
	}
	addDevices(c, &given)
	if err := makeLogDir(filepath.Join(sandboxConfig.LogDirectory, spec.Name)); err != nil {
		return configs{}, err
	}
	return configs{container: c, sandbox: sandboxConfig}, m.addClaims(ctx, pod, spec, c)
}

// target returns the id of the container whose processes an ephemeral container is to
// show; "" if it does not name one.
func (cs *containers) target(name string) (string, error) {
	spec := podspec.Ephemeral(cs.pod, name)
	if spec == nil || spec.TargetContainerName == "" {
		return "", nil
	}
	c := cs.observed.latest(spec.TargetContainerName)
	if c == nil || !c.running() {
		return "", fmt.Errorf("unable to find target container %q", spec.TargetContainerName)
	}
	return c.id, nil
}

// environment returns the container's environment, with the variables of Services.
func (m *Manager) environment(ctx context.Context, pod *corev1.Pod, spec *corev1.Container) ([]*runtimeapi.KeyValue, error) {
	services, synced := m.cfg.Services()
	if !synced && !podspec.Static(pod) { // the API may run in the static pod
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	return m.cfg.Environment(ctx, env.Request{Pod: pod, Container: spec, Node: m.cfg.Node(), Services: services})
}

func containerLabels(pod *corev1.Pod, spec *corev1.Container) map[string]string {
	return map[string]string{
		cri.LabelPodName: pod.Name, cri.LabelPodNamespace: pod.Namespace, cri.LabelPodUID: string(pod.UID),
		cri.LabelContainerName: spec.Name,
	}
}

// containerAnnotations returns the state that a restarted kubelet recovers.
func containerAnnotations(pod *corev1.Pod, s start) map[string]string {
	a := map[string]string{
		cri.AnnotationHash:          containerHash(s.spec),
		cri.AnnotationRestartCount:  strconv.Itoa(int(s.attempt)),
		cri.AnnotationMessagePath:   s.spec.TerminationMessagePath,
		cri.AnnotationMessagePolicy: string(s.spec.TerminationMessagePolicy),
		cri.AnnotationGracePeriod:   strconv.FormatInt(int64(specGracePeriod(pod).Seconds()), 10),
		cri.AnnotationRestartDelay:  s.delay.String(),
	}
	if text, err := json.Marshal(computeOf(&s.spec.Resources)); err == nil {
		a[cri.AnnotationResources] = string(text)
	}
	if l := s.spec.Lifecycle; l != nil && l.PreStop != nil {
		if text, err := json.Marshal(l.PreStop); err == nil {
			a[cri.AnnotationPreStop] = string(text)
		}
	}
	return a
}

// containerMounts returns the mounts of the volumes, of /etc/hosts and of the
// termination message file.
func (cs *containers) containerMounts(ctx context.Context, pod *corev1.Pod, s start, vars []*runtimeapi.KeyValue, ids imageIDs) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	ownHosts := false
	for i := range s.spec.VolumeMounts {
		vm := &s.spec.VolumeMounts[i]
		mount, err := cs.volumeMount(ctx, vm, vars, ids)
		if err != nil {
			return nil, err
		}
		ownHosts = ownHosts || path.Clean(vm.MountPath) == "/etc/hosts"
		out = append(out, mount)
	}
	if !ownHosts {
		ips := make([]string, 0, len(pod.Status.PodIPs))
		for _, ip := range pod.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		hosts, err := cs.m.writeHosts(pod, ips)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: hosts})
	}
	if s.spec.TerminationMessagePath != "" {
		file, err := cs.m.writeMessageFile(pod.UID, s.spec.Name, s.attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: s.spec.TerminationMessagePath, HostPath: file})
	}
	return out, nil
}

// volumeMount returns the mount of a volume that is ready, with its sub-path resolved.
func (cs *containers) volumeMount(ctx context.Context, vm *corev1.VolumeMount, vars []*runtimeapi.KeyValue, ids imageIDs) (*runtimeapi.Mount, error) {
	sub := vm.SubPath
	if vm.SubPathExpr != "" {
		var err error
		if sub, err = env.ExpandSubPath(vm.SubPathExpr, vars); err != nil {
			return nil, err
		}
	}
	if id := ids.volumes[vm.Name]; id != "" {
		return &runtimeapi.Mount{ContainerPath: inContainer(vm.MountPath), Readonly: true, Image: &runtimeapi.ImageSpec{Image: id}, ImageSubPath: sub}, nil
	}
	volume := cs.mounts.mount(vm.Name).ready
	if volume == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container", vm.Name)
	}
	hostPath := volume.HostPath
	if sub != "" {
		var err error
		if hostPath, err = cs.m.cfg.Volumes.SubPath(ctx, *volume, sub); err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container: %w", vm.Name, err)
		}
	}
	recursive, err := cs.m.recursive(ctx, cs.pod, vm)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.Mount{
		ContainerPath: inContainer(vm.MountPath), HostPath: hostPath, Readonly: vm.ReadOnly || volume.ReadOnly, RecursiveReadOnly: recursive,
		Propagation: propagation(vm.MountPropagation),
	}, nil
}

// inContainer returns the mount path as the runtime gets it.
func inContainer(mountPath string) string {
	if path.IsAbs(mountPath) {
		return mountPath
	}
	return path.Join("/", mountPath)
}

// devices returns the block devices of the container's volumes, which are ready.
func (cs *containers) devices(spec *corev1.Container) ([]*runtimeapi.Device, error) {
	var out []*runtimeapi.Device
	for i := range spec.VolumeDevices {
		d := &spec.VolumeDevices[i]
		volume := cs.mounts.mount(d.Name).ready
		if volume == nil || !volume.Device {
			return nil, fmt.Errorf("cannot find volume %q to pass into container", d.Name)
		}
		permissions := "mrw"
		if volume.ReadOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{HostPath: volume.HostPath, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return out, nil
}

func propagation(p *corev1.MountPropagationMode) runtimeapi.MountPropagation {
	if p != nil {
		switch *p {
		case corev1.MountPropagationHostToContainer:
			return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}
