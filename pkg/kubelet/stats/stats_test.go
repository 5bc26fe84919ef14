package stats_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/stats"
)

// containers is a runtime that only has statistics.
type containers struct {
	runtimeapi.RuntimeServiceClient
	stats []*runtimeapi.ContainerStats
}

func (c *containers) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest, ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{Stats: c.stats}, nil
}

func measured(id, uid, name string, at time.Time, cpu, memory uint64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: id, Labels: map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": name}},
		Cpu:        &runtimeapi.CpuUsage{Timestamp: at.UnixNano(), UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: cpu}},
		Memory:     &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: &runtimeapi.UInt64Value{Value: memory}},
	}
}

func TestSummary(t *testing.T) {
	start := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	now := start
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Status: corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{{Name: "a", State: running}, {Name: "b", State: running}, {Name: "done"}}}}
	rt := &containers{}
	c := &stats.Collector{NodeName: "n", Runtime: rt, Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} },
		Now: func() time.Time { return now }, Machine: stats.Machine{Proc: "testdata/proc", RootDir: "/"}}

	rt.stats = []*runtimeapi.ContainerStats{measured("1", "u", "a", now, 5e9, 100), measured("2", "u", "b", now, 1e9, 50),
		measured("0", "u", "a", now.Add(-time.Hour), 9e9, 999), measured("3", "u", "done", now, 7, 7), measured("4", "stranger", "a", now, 7, 7)}
	first, err := c.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := first.Pods[0]; len(first.Pods) != 1 || len(p.Containers) != 2 || *p.CPU.UsageCoreNanoSeconds != 6e9 || *p.Memory.WorkingSetBytes != 150 || p.CPU.UsageNanoCores != nil {
		text, _ := json.Marshal(first.Pods)
		t.Errorf("the first reading is %s", text)
	}
	n := first.Node
	if *n.CPU.UsageCoreNanoSeconds != 178*1e7 || *n.Memory.WorkingSetBytes != 500<<10 || *n.Memory.AvailableBytes != 500<<10 ||
		len(n.Network.Interfaces) != 1 || *n.Network.Interfaces[0].TxBytes != 2000 || *n.Rlimit.NumOfRunningProcesses != 123 || n.StartTime.Unix() != 1767366245 {
		text, _ := json.Marshal(n)
		t.Errorf("the node is %s", text)
	}

	now = start.Add(10 * time.Second)
	rt.stats = []*runtimeapi.ContainerStats{measured("1", "u", "a", now, 10e9, 100)}
	second, err := c.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := second.Pods[0].Containers[0].CPU.UsageNanoCores; got == nil || *got != 5e8 {
		t.Errorf("5 s of work in 10 s are %v nanocores", got)
	}

	if got := stats.ContainerMetrics(second); !strings.Contains(got, `container_memory_working_set_bytes{container="a",namespace="ns",pod="p"} 100`) {
		t.Error(got)
	}
}

func TestResourceMetrics(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 250e6, time.UTC)
	a, b := measured("1", "u", "a", at, 10e9, 100), measured("2", "u", "b", at, 1500e6, 50)
	a.Swap = &runtimeapi.SwapUsage{Timestamp: at.UnixNano(), SwapUsageBytes: &runtimeapi.UInt64Value{Value: 7}, SwapAvailableBytes: &runtimeapi.UInt64Value{Value: 93}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for _, name := range []string{"a", "b"} {
		started := metav1.NewTime(at.Add(-2 * time.Second))
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		})
	}
	c := &stats.Collector{NodeName: "n", Runtime: &containers{stats: []*runtimeapi.ContainerStats{a, b}}, Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} },
		Now: func() time.Time { return at }, Machine: stats.Machine{Proc: "testdata/proc", RootDir: "/"}}
	sum, err := c.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/resource.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), stats.ResourceMetrics(sum)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	failed := "# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise\n# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n"
	if diff := cmp.Diff(failed, stats.ResourceMetrics(nil)); diff != "" {
		t.Errorf("after a failed measurement (-want +got):\n%s", diff)
	}
}

func TestStatsWithoutSources(t *testing.T) {
	n := stats.Machine{Proc: t.TempDir(), RootDir: "/no/such/directory"}.Node("n", time.Unix(0, 0))
	if n.CPU != nil || n.Memory != nil || n.Swap != nil || n.Network != nil || n.Fs != nil || n.Rlimit != nil {
		t.Errorf("made up: %+v", n)
	}
}
