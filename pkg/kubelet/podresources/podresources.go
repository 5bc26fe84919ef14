// Package podresources serves the pod resources API (v1 and v1alpha1) to monitoring agents
// and device plugins of the node: which devices its containers have, and which it can give.
// The socket is kubelet.sock in <root>/pod-resources.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/memorymanager"
	"podium/pkg/kubelet/podspec"
)

// Devices knows the devices of device plugins.
type Devices interface {
	Devices(pod types.UID, container string) []devices.Device
	Allocatable() []devices.Device
}

// Placement knows the CPUs that containers have for themselves, and their memory of NUMA nodes.
type Placement interface {
	ExclusiveCPUs(pod types.UID, container string) []int
	AllocatableCPUs() []int
	Memory(pod types.UID, container string) []memorymanager.Block
	AllocatableMemory() []memorymanager.Block
}

// Dynamic knows the devices of resource claims.
type Dynamic interface {
	// DynamicResources returns the devices that a container has by claims.
	DynamicResources(pod *corev1.Pod, container *corev1.Container) []*api.DynamicResource
}

// Config holds the dependencies of a Server.
type Config struct {
	Root      string // the kubelet's --root-dir
	Pods      func() []*corev1.Pod
	Devices   Devices
	Placement Placement // nil: all containers share all CPUs and memory
	Dynamic   Dynamic   // nil: no container has claims
	Metrics   *Metrics
	Log       *slog.Logger
}

// The rate of requests that are answered, and how many may exceed it: upstream's.
const (
	requestRate  = 100
	requestBurst = 10
)

// Server serves the API. It is safe for concurrent use.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	cfg Config
}

// New returns a Server.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// Run serves the API until ctx ends. The node works without, so that a socket that cannot
// be served is only logged.
func (s *Server) Run(ctx context.Context) error {
	l, err := listen(filepath.Join(s.cfg.Root, "pod-resources", "kubelet.sock"))
	if err != nil {
		s.cfg.Log.Error("the pod resources API is not served", "error", err)
		return nil
	}
	limit := rate.NewLimiter(requestRate, requestBurst)
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handle(ctx, req)
	}))
	api.RegisterPodResourcesListerServer(g, s)
	v1alpha1.RegisterPodResourcesListerServer(g, &alpha{s: s})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l) // it ends with Stop
	}()
	<-ctx.Done()
	g.Stop()
	<-done
	return nil
}

func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// List returns the resources of all pods that have not ended.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	s.cfg.Metrics.list("v1")
	out := &api.ListPodResourcesResponse{}
	for _, pod := range s.active() {
		out.PodResources = append(out.PodResources, s.pod(pod))
	}
	return out, nil
}

// Get returns the resources of one pod.
func (s *Server) Get(_ context.Context, req *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	s.cfg.Metrics.get()
	for _, pod := range s.active() {
		if pod.Name == req.PodName && pod.Namespace == req.PodNamespace {
			return &api.GetPodResourcesResponse{PodResources: s.pod(pod)}, nil
		}
	}
	s.cfg.Metrics.getFailed()
	return nil, status.Error(codes.NotFound, fmt.Sprintf("pod %s in namespace %s not found", req.PodName, req.PodNamespace))
}

// GetAllocatableResources returns the healthy devices of the node, and the CPUs and the memory that
// containers may have for themselves.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	s.cfg.Metrics.allocatable()
	out := &api.AllocatableResourcesResponse{Devices: containerDevices(s.cfg.Devices.Allocatable())}
	if p := s.cfg.Placement; p != nil {
		out.CpuIds, out.Memory = cpuIDs(p.AllocatableCPUs()), containerMemory(p.AllocatableMemory())
	}
	return out, nil
}

// active returns the pods that have not ended.
func (s *Server) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range s.cfg.Pods() {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			out = append(out, pod)
		}
	}
	return out
}

// pod returns the resources of the containers that run as long as the pod does.
func (s *Server) pod(pod *corev1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for c := range podspec.Main(pod) {
		r := &api.ContainerResources{Name: c.Name, Devices: containerDevices(s.cfg.Devices.Devices(pod.UID, c.Name))}
		if p := s.cfg.Placement; p != nil {
			r.CpuIds, r.Memory = cpuIDs(p.ExclusiveCPUs(pod.UID, c.Name)), containerMemory(p.Memory(pod.UID, c.Name))
		}
		if s.cfg.Dynamic != nil {
			r.DynamicResources = s.cfg.Dynamic.DynamicResources(pod, c)
		}
		out.Containers = append(out.Containers, r)
	}
	return out
}

func cpuIDs(list []int) []int64 {
	var out []int64
	for _, id := range list {
		out = append(out, int64(id))
	}
	return out
}

func containerMemory(list []memorymanager.Block) []*api.ContainerMemory {
	var out []*api.ContainerMemory
	for _, b := range list {
		m := &api.ContainerMemory{MemoryType: string(b.Resource), Size: b.Bytes, Topology: &api.TopologyInfo{}}
		for _, n := range b.Nodes {
			m.Topology.Nodes = append(m.Topology.Nodes, &api.NUMANode{ID: int64(n)})
		}
		out = append(out, m)
	}
	return out
}

// containerDevices returns an entry for each device, as upstream.
func containerDevices(list []devices.Device) []*api.ContainerDevices {
	var out []*api.ContainerDevices
	for _, d := range list {
		c := &api.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}}
		if len(d.Nodes) > 0 {
			c.Topology = &api.TopologyInfo{}
			for _, n := range d.Nodes {
				c.Topology.Nodes = append(c.Topology.Nodes, &api.NUMANode{ID: n})
			}
		}
		out = append(out, c)
	}
	return out
}

// alpha serves v1alpha1, which only lists devices.
type alpha struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	s *Server
}

func (a *alpha) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	a.s.cfg.Metrics.list("v1alpha1")
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, pod := range a.s.active() {
		p := &v1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for c := range podspec.Main(pod) {
			p.Containers = append(p.Containers, &v1alpha1.ContainerResources{Name: c.Name, Devices: alphaDevices(a.s.cfg.Devices.Devices(pod.UID, c.Name))})
		}
		out.PodResources = append(out.PodResources, p)
	}
	return out, nil
}

// alphaDevices returns an entry for each resource of a list that is ordered by resource.
func alphaDevices(list []devices.Device) []*v1alpha1.ContainerDevices {
	var out []*v1alpha1.ContainerDevices
	for _, d := range list {
		if len(out) == 0 || out[len(out)-1].ResourceName != d.Resource {
			out = append(out, &v1alpha1.ContainerDevices{ResourceName: d.Resource})
		}
		last := out[len(out)-1]
		last.DeviceIds = append(last.DeviceIds, d.ID)
	}
	return out
}
