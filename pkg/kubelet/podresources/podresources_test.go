package podresources_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/memorymanager"
	"podium/pkg/kubelet/plugins"
	"podium/pkg/kubelet/podresources"
)

// table is what containers have, by pod and container.
type table map[string][]devices.Device

func (t table) Devices(pod types.UID, container string) []devices.Device {
	return t[string(pod)+"/"+container]
}

func (t table) Allocatable() []devices.Device {
	return []devices.Device{{Resource: "example.com/gpu", ID: "a", Nodes: []int64{0, 1}}, {Resource: "example.com/gpu", ID: "b"}}
}

func (t table) DynamicResources(pod *corev1.Pod, c *corev1.Container) []*api.DynamicResource {
	if c.Name != "side" {
		return nil
	}
	return []*api.DynamicResource{{ClaimName: "claim-of-" + pod.Name}}
}

func (t table) ExclusiveCPUs(_ types.UID, container string) []int {
	if container != "main" {
		return nil
	}
	return []int{2, 3}
}

func (t table) AllocatableCPUs() []int { return []int{1, 2, 3} }

func (t table) Memory(_ types.UID, container string) []memorymanager.Block {
	if container != "main" {
		return nil
	}
	return []memorymanager.Block{{Resource: "memory", Bytes: 1 << 20, Nodes: []int{0, 1}}, {Resource: "hugepages-2Mi", Bytes: 2 << 20, Nodes: []int{1}}}
}

func (t table) AllocatableMemory() []memorymanager.Block {
	return []memorymanager.Block{{Resource: "memory", Bytes: 1 << 30, Nodes: []int{1}}}
}

func newPod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// serve serves the API of a node with two pods, of which one has ended.
func serve(t *testing.T) (*grpc.ClientConn, *prometheus.Registry) {
	root, err := os.MkdirTemp("", "podres") // short: the path of a socket has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	have := table{
		"user/init": {{Resource: "example.com/gpu", ID: "a"}},
		"user/main": {{Resource: "example.com/gpu", ID: "a", Nodes: []int64{1}}, {Resource: "example.com/gpu", ID: "b"}, {Resource: "example.com/nic", ID: "x"}},
	}
	registry := prometheus.NewRegistry()
	s := podresources.New(podresources.Config{
		Root: root, Devices: have, Placement: have, Dynamic: have, Log: slog.New(slog.DiscardHandler), Metrics: podresources.NewMetrics(registry),
		Pods: func() []*corev1.Pod {
			return []*corev1.Pod{newPod("user", corev1.PodRunning), newPod("ended", corev1.PodSucceeded)}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := plugins.Dial(filepath.Join(root, "pod-resources", "kubelet.sock"), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, registry
}

func TestListAndGet(t *testing.T) {
	conn, registry := serve(t)
	c := api.NewPodResourcesListerClient(conn)
	user := &api.PodResources{Name: "user", Namespace: "default", Containers: []*api.ContainerResources{
		{Name: "side", DynamicResources: []*api.DynamicResource{{ClaimName: "claim-of-user"}}},
		{Name: "main", CpuIds: []int64{2, 3}, Memory: []*api.ContainerMemory{
			{MemoryType: "memory", Size: 1 << 20, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}, {ID: 1}}}},
			{MemoryType: "hugepages-2Mi", Size: 2 << 20, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}},
		}, Devices: []*api.ContainerDevices{
			{ResourceName: "example.com/gpu", DeviceIds: []string{"a"}, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}},
			{ResourceName: "example.com/gpu", DeviceIds: []string{"b"}},
			{ResourceName: "example.com/nic", DeviceIds: []string{"x"}},
		}},
	}}
	list, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
	if diff := cmp.Diff([]*api.PodResources{user}, list.GetPodResources(), protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
	got, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "user", PodNamespace: "default"})
	if diff := cmp.Diff(user, got.GetPodResources(), protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "ended", PodNamespace: "default"}); status.Code(err) != codes.NotFound {
		t.Errorf("a pod that has ended: %v", err)
	}
	all, err := c.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	want := []*api.ContainerDevices{
		{ResourceName: "example.com/gpu", DeviceIds: []string{"a"}, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}, {ID: 1}}}},
		{ResourceName: "example.com/gpu", DeviceIds: []string{"b"}},
	}
	if diff := cmp.Diff(want, all.GetDevices(), protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if diff := cmp.Diff([]int64{1, 2, 3}, all.GetCpuIds()); diff != "" {
		t.Error(diff)
	}
	memory := []*api.ContainerMemory{{MemoryType: "memory", Size: 1 << 30, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}}}
	if diff := cmp.Diff(memory, all.GetMemory(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	alpha, err := v1alpha1.NewPodResourcesListerClient(conn).List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
	wantAlpha := []*v1alpha1.PodResources{{Name: "user", Namespace: "default", Containers: []*v1alpha1.ContainerResources{
		{Name: "side"}, {Name: "main", Devices: []*v1alpha1.ContainerDevices{
			{ResourceName: "example.com/gpu", DeviceIds: []string{"a", "b"}}, {ResourceName: "example.com/nic", DeviceIds: []string{"x"}},
		}},
	}}}
	if diff := cmp.Diff(wantAlpha, alpha.GetPodResources(), protocmp.Transform()); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kubelet_pod_resources_endpoint_errors_get Number of Get requests to the pod resources API that failed by API version.
# TYPE kubelet_pod_resources_endpoint_errors_get counter
kubelet_pod_resources_endpoint_errors_get{server_api_version="v1"} 1
# HELP kubelet_pod_resources_endpoint_requests_total Cumulative number of requests to the pod resources API by API version.
# TYPE kubelet_pod_resources_endpoint_requests_total counter
kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 4
kubelet_pod_resources_endpoint_requests_total{server_api_version="v1alpha1"} 1
`), "kubelet_pod_resources_endpoint_errors_get", "kubelet_pod_resources_endpoint_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestRequestsAreLimited(t *testing.T) {
	conn, _ := serve(t)
	c := api.NewPodResourcesListerClient(conn)
	results := make(chan error)
	for range 500 {
		go func() {
			_, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
			results <- err
		}()
	}
	rejected := 0
	for range 500 {
		if err := <-results; status.Code(err) == codes.ResourceExhausted {
			rejected++
		} else if err != nil {
			t.Error(err)
		}
	}
	if rejected == 0 {
		t.Error("a flood of requests is answered")
	}
}
