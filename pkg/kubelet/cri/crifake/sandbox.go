package crifake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	id      string
	seq     int
	created time.Time
	ready   bool
	ip      string
	config  *runtimeapi.PodSandboxConfig
	handler string
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) order() int { return s.seq }

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
		Labels: s.config.Labels, Annotations: s.config.Annotations, RuntimeHandler: s.handler,
		Network: &runtimeapi.PodSandboxNetworkStatus{},
	}
	if s.ready {
		st.Network.Ip = s.ip
	}
	return st
}

// RunPodSandbox implements the CRI call.
func (r *Runtime) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	meta := in.GetConfig().GetMetadata()
	if meta == nil || meta.Uid == "" {
		return nil, status.Error(codes.InvalidArgument, "sandbox config must include metadata")
	}
	if err := r.begin(ctx, "RunPodSandbox", meta.Name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		m := s.config.Metadata
		if m.Uid == meta.Uid && m.Name == meta.Name && m.Namespace == meta.Namespace && m.Attempt == meta.Attempt {
			return nil, status.Errorf(codes.Unknown, "failed to reserve sandbox name %q: name is reserved for %q", meta.Name, s.id)
		}
	}
	s := &sandbox{id: r.id("a"), created: time.Now(), ready: true, config: in.Config, handler: in.RuntimeHandler}
	s.seq = r.next
	if r.cfg.IP != nil {
		s.ip = r.cfg.IP()
	} else {
		s.ip = fmt.Sprintf("10.88.%d.%d", s.seq/250%250, s.seq%250+2)
	}
	if in.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		s.ip = ""
	}
	r.sandboxes[s.id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

// StopPodSandbox implements the CRI call. A stopped sandbox or an unknown id is
// not an error.
func (r *Runtime) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	if err := r.begin(ctx, "StopPodSandbox", r.podOf(in.PodSandboxId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[in.PodSandboxId]; s != nil {
		r.stopSandboxLocked(s)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *Runtime) stopSandboxLocked(s *sandbox) {
	s.ready = false
	for _, c := range sorted(r.containers) {
		if c.sandbox == s {
			r.exitLocked(c, 137)
		}
	}
}

// RemovePodSandbox implements the CRI call. It also removes the sandbox's
// containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	if err := r.begin(ctx, "RemovePodSandbox", r.podOf(in.PodSandboxId)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[in.PodSandboxId]; s != nil {
		r.stopSandboxLocked(s)
		maps.DeleteFunc(r.containers, func(_ string, c *container) bool { return c.sandbox == s })
		delete(r.sandboxes, s.id)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus implements the CRI call.
func (r *Runtime) PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := r.begin(ctx, "PodSandboxStatus", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[in.PodSandboxId]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox %q: not found", in.PodSandboxId)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
}

// ListPodSandbox implements the CRI call.
func (r *Runtime) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	if err := r.begin(ctx, "ListPodSandbox", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	f := in.GetFilter()
	for _, s := range sorted(r.sandboxes) {
		if f.GetId() != "" && f.Id != s.id || f.GetState() != nil && f.State.State != s.state() || !subset(f.GetLabelSelector(), s.config.Labels) {
			continue
		}
		out.Items = append(out.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
			Labels: s.config.Labels, Annotations: s.config.Annotations, RuntimeHandler: s.handler,
		})
	}
	return out, nil
}

func (r *Runtime) podOf(sandboxID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[sandboxID]; s != nil {
		return s.config.Metadata.Name
	}
	return sandboxID
}

func subset(want, have map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// sorted returns the values of a map, oldest first.
func sorted[T interface{ order() int }](m map[string]T) []T {
	return slices.SortedFunc(maps.Values(m), func(a, b T) int { return cmp.Compare(a.order(), b.order()) })
}
