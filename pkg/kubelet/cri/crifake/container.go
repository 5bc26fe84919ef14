package crifake

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

type container struct {
	id                       string
	seq                      int
	sandbox                  *sandbox
	config                   *runtimeapi.ContainerConfig
	state                    runtimeapi.ContainerState
	created, started, exited time.Time
	starting                 time.Time // cannot be removed before this time
	exitCode                 int32
	reason, message          string
	script                   Behaviour
	written                  uint64 // bytes in its writable layer
	memory                   uint64 // bytes in use
	linux                    *runtimeapi.LinuxContainerResources
	signal                   runtimeapi.Signal
	end                      *time.Timer
	gone                     chan struct{} // closed when it has exited
}

func (c *container) order() int { return c.seq }

func (c *container) view() Container {
	m := c.sandbox.config.Metadata
	return Container{
		ID: c.id, SandboxID: c.sandbox.id, Namespace: m.Namespace, Pod: m.Name, UID: m.Uid,
		Name: c.config.Metadata.Name, Image: c.config.Image.GetImage(), Attempt: c.config.Metadata.Attempt,
		State: c.state, Created: c.created, Started: c.started, Exited: c.exited, ExitCode: c.exitCode, Config: c.config, Linux: c.linux,
	}
}

func (c *container) name() string {
	return c.sandbox.config.Metadata.Name + "/" + c.config.Metadata.Name
}

func (c *container) status() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: nanos(c.created), StartedAt: nanos(c.started), FinishedAt: nanos(c.exited),
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: c.config.Image, ImageRef: c.config.Image.GetImage(), ImageId: c.config.Image.GetImage(),
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts,
		LogPath:   c.sandbox.config.LogDirectory + "/" + c.config.LogPath,
		Resources: &runtimeapi.ContainerResources{Linux: c.linux}, StopSignal: c.signal,
	}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// CreateContainer implements the CRI call.
func (r *Runtime) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	if err := r.begin(ctx, "CreateContainer", r.podOf(in.PodSandboxId)+"/"+in.Config.Metadata.Name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[in.PodSandboxId]
	switch {
	case s == nil:
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", in.PodSandboxId)
	case !s.ready:
		return nil, status.Errorf(codes.Unknown, "sandbox container %q is not running", s.id)
	case r.imageLocked(in.Config.Image.GetImage()) == nil:
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", in.Config.Image.GetImage())
	}
	if err := r.targetLocked(in.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()); err != nil {
		return nil, err
	}
	if err := r.mountsLocked(in.Config.Mounts); err != nil {
		return nil, err
	}
	for _, c := range r.containers {
		if m := c.config.Metadata; c.sandbox == s && m.Name == in.Config.Metadata.Name && m.Attempt == in.Config.Metadata.Attempt {
			return nil, status.Errorf(codes.Unknown, "failed to reserve container name %q: name is reserved for %q", m.Name, c.id)
		}
	}
	c := &container{id: r.id("c"), sandbox: s, config: in.Config, created: time.Now(), gone: make(chan struct{}), linux: in.Config.GetLinux().GetResources()}
	if r.cfg.StopSignals {
		c.signal = in.Config.StopSignal
	}
	c.seq = r.next
	r.containers[c.id] = c
	r.emitLocked(c.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, s)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// targetLocked returns an error if a container is to join the processes of one that
// does not run. r.mu is held.
func (r *Runtime) targetLocked(n *runtimeapi.NamespaceOption) error {
	if n.GetPid() != runtimeapi.NamespaceMode_TARGET {
		return nil
	}
	c := r.containers[n.TargetId]
	switch {
	case c == nil:
		return status.Errorf(codes.Unknown, "invalid target container: container %q not found", n.TargetId)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return status.Errorf(codes.Unknown, "invalid target container: container %q is not running - in state %s", n.TargetId, c.state)
	}
	return nil
}

// mountsLocked returns an error for mounts that a real runtime refuses. r.mu is held.
func (r *Runtime) mountsLocked(mounts []*runtimeapi.Mount) error {
	for _, m := range mounts {
		switch {
		case m.Image == nil && m.HostPath == "":
			return status.Errorf(codes.Unknown, "mount %s of nothing", m.ContainerPath)
		case m.Image != nil && m.HostPath != "":
			return status.Errorf(codes.Unknown, "mount %s of an image and of host path %s", m.ContainerPath, m.HostPath)
		case m.Image != nil && r.imageLocked(m.Image.Image) == nil:
			return status.Errorf(codes.NotFound, "failed to resolve image %q: not found", m.Image.Image)
		}
	}
	return nil
}

// StartContainer implements the CRI call.
func (r *Runtime) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	d := r.latency("StartContainer")
	r.noteStarting(in.ContainerId, d)
	if err := r.beginAfter(ctx, d, "StartContainer", r.nameOf(in.ContainerId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[in.ContainerId]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", in.ContainerId)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.Unknown, "container %q is in state %s", c.id, c.state)
	}
	if r.cfg.Behave != nil {
		c.script = r.cfg.Behave(c.start())
	}
	c.started = time.Now()
	if err := c.script.StartErr; err != nil {
		c.reason, c.message = "StartError", err.Error()
		r.exitLocked(c, 128)
		return nil, status.Error(codes.Unknown, err.Error())
	}
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	r.emitLocked(c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.sandbox)
	if c.script.Exits || c.script.ExitAfter > 0 {
		c.end = time.AfterFunc(c.script.ExitAfter, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.exitLocked(c, c.script.ExitCode)
		})
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// noteStarting prevents the removal of a container for d, while it is starting.
// As in containerd, it applies even if the caller no longer waits for the start.
func (r *Runtime) noteStarting(id string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.starting = time.Now().Add(d)
	}
}

func (c *container) start() Start {
	m, cfg := c.sandbox.config.Metadata, c.config
	s := Start{
		Namespace: m.Namespace, Pod: m.Name, UID: m.Uid, Container: cfg.Metadata.Name, Image: cfg.Image.GetUserSpecifiedImage(),
		Attempt: cfg.Metadata.Attempt, Command: cfg.Command, Args: cfg.Args, Env: map[string]string{},
	}
	for _, e := range cfg.Envs {
		s.Env[e.Key] = string(e.Value)
	}
	return s
}

// exitLocked ends a container unless it has already exited. r.mu is held.
func (r *Runtime) exitLocked(c *container, code int32) {
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	if c.end != nil {
		c.end.Stop()
	}
	c.state, c.exited, c.exitCode = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now(), code
	if c.reason == "" {
		c.reason = cri.ReasonCompleted
		if code != 0 {
			c.reason = cri.ReasonError
		}
	}
	close(c.gone)
	r.emitLocked(c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.sandbox)
}

// StopContainer implements the CRI call: SIGTERM, the grace period, SIGKILL.
func (r *Runtime) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	if err := r.begin(ctx, "StopContainer", r.nameOf(in.ContainerId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := r.containers[in.ContainerId]
	r.mu.Unlock()
	if c == nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	grace := time.Duration(in.Timeout) * time.Second
	after, code := c.script.TermDelay, c.script.TermCode
	if c.script.Deaf || after > grace || grace == 0 {
		after, code = grace, 137
	}
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.gone:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exitLocked(c, code)
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer implements the CRI call. An unknown id is not an error.
func (r *Runtime) RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	if err := r.begin(ctx, "RemoveContainer", r.nameOf(in.ContainerId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[in.ContainerId]; c != nil {
		if time.Now().Before(c.starting) {
			return nil, status.Errorf(codes.Unknown, "failed to set removing state for container %q: container is in starting state, can't be removed", c.id)
		}
		r.exitLocked(c, 137)
		delete(r.containers, c.id)
		r.emitLocked(c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.sandbox)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// UpdateContainerResources implements the CRI call. As in the kernel, the limits of a
// container must not exceed those of its pod (Config.Limit), and a memory limit must
// not be below what is in use.
func (r *Runtime) UpdateContainerResources(ctx context.Context, in *runtimeapi.UpdateContainerResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	if err := r.begin(ctx, "UpdateContainerResources", r.nameOf(in.ContainerId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[in.ContainerId]
	switch {
	case c == nil:
		return nil, status.Errorf(codes.NotFound, "failed to find container: %q: not found", in.ContainerId)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return nil, status.Errorf(codes.Unknown, "failed to update resources: container %q is in state %s", c.id, c.state)
	case in.Linux.MemoryLimitInBytes > 0 && uint64(in.Linux.MemoryLimitInBytes) < c.memory:
		return nil, status.Error(codes.Unknown, "failed to write memory.limit_in_bytes: device or resource busy")
	}
	if r.cfg.Limit != nil {
		if err := r.cfg.Limit(c.view(), in.Linux); err != nil {
			return nil, status.Error(codes.Unknown, err.Error())
		}
	}
	c.linux = in.Linux
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ContainerStats implements the CRI call. It reports only the memory.
func (r *Runtime) ContainerStats(ctx context.Context, in *runtimeapi.ContainerStatsRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error) {
	if err := r.begin(ctx, "ContainerStats", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[in.ContainerId]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find container: %q: not found", in.ContainerId)
	}
	used := &runtimeapi.UInt64Value{Value: c.memory}
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata},
		Memory:     &runtimeapi.MemoryUsage{Timestamp: time.Now().UnixNano(), WorkingSetBytes: used, UsageBytes: used},
	}}, nil
}

// ListContainers implements the CRI call.
func (r *Runtime) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	if err := r.begin(ctx, "ListContainers", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	f := in.GetFilter()
	for _, c := range sorted(r.containers) {
		switch {
		case f.GetId() != "" && f.Id != c.id, f.GetPodSandboxId() != "" && f.PodSandboxId != c.sandbox.id,
			f.GetState() != nil && f.State.State != c.state, !subset(f.GetLabelSelector(), c.config.Labels):
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image, ImageRef: c.config.Image.GetImage(),
			State: c.state, CreatedAt: nanos(c.created), Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return out, nil
}

// ContainerStatus implements the CRI call.
func (r *Runtime) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	if err := r.begin(ctx, "ContainerStatus", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[in.ContainerId]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", in.ContainerId)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ListContainerStats implements the CRI call. It reports only the memory
// and the sizes of writable layers.
func (r *Runtime) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	if err := r.begin(ctx, "ListContainerStats", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainerStatsResponse{}
	f := in.GetFilter()
	for _, c := range sorted(r.containers) {
		if f.GetId() != "" && f.Id != c.id || f.GetPodSandboxId() != "" && f.PodSandboxId != c.sandbox.id || !subset(f.GetLabelSelector(), c.config.Labels) {
			continue
		}
		out.Stats = append(out.Stats, &runtimeapi.ContainerStats{
			Attributes:    &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations},
			Memory:        &runtimeapi.MemoryUsage{Timestamp: time.Now().UnixNano(), WorkingSetBytes: &runtimeapi.UInt64Value{Value: c.memory}},
			WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: time.Now().UnixNano(), UsedBytes: &runtimeapi.UInt64Value{Value: c.written}},
		})
	}
	return out, nil
}

// ReopenContainerLog implements the CRI call. It does nothing.
func (r *Runtime) ReopenContainerLog(ctx context.Context, in *runtimeapi.ReopenContainerLogRequest, _ ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, r.begin(ctx, "ReopenContainerLog", r.nameOf(in.ContainerId))
}

// ExecSync implements the CRI call; Config.Exec answers it.
func (r *Runtime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	if err := r.begin(ctx, "ExecSync", r.nameOf(in.ContainerId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := r.containers[in.ContainerId]
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return nil, status.Errorf(codes.NotFound, "container %q is not running", in.ContainerId)
	}
	view := c.view()
	r.mu.Unlock()
	if r.cfg.Exec == nil {
		return &runtimeapi.ExecSyncResponse{}, nil
	}
	if in.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(in.Timeout)*time.Second)
		defer cancel()
	}
	res := r.cfg.Exec(ctx, view, in.Cmd)
	switch {
	case ctx.Err() != nil:
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %ds exceeded: context deadline exceeded", in.Timeout)
	case res.Err != nil:
		return nil, res.Err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode}, nil
}

func (r *Runtime) nameOf(containerID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[containerID]; c != nil {
		return c.name()
	}
	return containerID
}
