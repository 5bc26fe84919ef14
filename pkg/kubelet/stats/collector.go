package stats

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// Collector measures on demand. It is safe for concurrent use.
type Collector struct {
	NodeName string
	Runtime  runtimeapi.RuntimeServiceClient
	Machine  Machine
	Pods     func() []*corev1.Pod
	Now      func() time.Time
	// Volume returns the last statistics of a volume by its name in the pod; nil: there
	// are none.
	Volume func(pod types.UID, volume string) (Filesystem, bool)

	mu   sync.Mutex
	last map[string]sample // by container id, and "" for the node
}

// sample is a reading of CPU time; two samples give a rate.
type sample struct {
	at    time.Time
	nanos uint64
	rate  *uint64
}

// rateWindow is the minimum interval over which a rate is measured.
const rateWindow = time.Second

// Summary measures the node and all pods. It blocks on the runtime.
func (c *Collector) Summary(ctx context.Context) (*Summary, error) {
	all, err := cri.ListStats(ctx, c.Runtime, nil)
	if err != nil {
		return nil, fmt.Errorf("list container stats: %s", cri.Message(err))
	}
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]sample{}
	s := &Summary{Node: c.Machine.Node(c.NodeName, now), Pods: []Pod{}}
	c.rate(seen, "", s.Node.CPU)

	byPod := map[types.UID]map[string]*runtimeapi.ContainerStats{}
	for _, st := range all {
		labels := st.GetAttributes().GetLabels()
		uid, name := types.UID(labels[cri.LabelPodUID]), labels[cri.LabelContainerName]
		if uid == "" || name == "" {
			continue
		}
		if byPod[uid] == nil {
			byPod[uid] = map[string]*runtimeapi.ContainerStats{}
		}
		// Of several containers with one name, the newest counts.
		if old := byPod[uid][name]; old == nil || old.GetCpu().GetTimestamp() < st.GetCpu().GetTimestamp() {
			byPod[uid][name] = st
		}
	}
	for _, pod := range c.Pods() {
		if stats := byPod[pod.UID]; stats != nil {
			s.Pods = append(s.Pods, c.pod(seen, pod, stats, now))
		}
	}
	c.last = seen
	return s, nil
}

func (c *Collector) pod(seen map[string]sample, pod *corev1.Pod, stats map[string]*runtimeapi.ContainerStats, now time.Time) Pod {
	p := Pod{PodRef: PodRef{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}, Containers: []Container{}, Volumes: volumes(pod, c.Volume)}
	if pod.Status.StartTime != nil {
		p.StartTime = *pod.Status.StartTime
	}
	started := map[string]metav1.Time{}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if r := list[i].State.Running; r != nil {
				started[list[i].Name] = r.StartedAt
			}
		}
	}
	p.CPU, p.Memory = &CPU{Time: metav1.NewTime(now)}, &Memory{Time: metav1.NewTime(now)}
	for name, st := range stats {
		if _, running := started[name]; !running {
			continue
		}
		ct := container(name, st)
		ct.StartTime = started[name]
		c.rate(seen, st.GetAttributes().GetId(), ct.CPU)
		if ct.CPU != nil {
			add(&p.CPU.UsageCoreNanoSeconds, ct.CPU.UsageCoreNanoSeconds)
			add(&p.CPU.UsageNanoCores, ct.CPU.UsageNanoCores)
		}
		if ct.Memory != nil {
			add(&p.Memory.UsageBytes, ct.Memory.UsageBytes)
			add(&p.Memory.WorkingSetBytes, ct.Memory.WorkingSetBytes)
			add(&p.Memory.RSSBytes, ct.Memory.RSSBytes)
		}
		if ct.Swap != nil {
			if p.Swap == nil {
				p.Swap = &Swap{Time: metav1.NewTime(now)}
			}
			add(&p.Swap.SwapAvailableBytes, ct.Swap.SwapAvailableBytes)
			add(&p.Swap.SwapUsageBytes, ct.Swap.SwapUsageBytes)
		}
		p.Containers = append(p.Containers, ct)
	}
	slices.SortFunc(p.Containers, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
	return p
}

func add(sum **uint64, v *uint64) {
	if v == nil {
		return
	}
	if *sum == nil {
		*sum = new(uint64)
	}
	**sum += *v
}

func container(name string, st *runtimeapi.ContainerStats) Container {
	c := Container{Name: name}
	if cpu := st.GetCpu(); cpu != nil {
		c.CPU = &CPU{Time: nanoTime(cpu.Timestamp), UsageCoreNanoSeconds: count(cpu.UsageCoreNanoSeconds), UsageNanoCores: count(cpu.UsageNanoCores)}
	}
	if mem := st.GetMemory(); mem != nil {
		c.Memory = &Memory{Time: nanoTime(mem.Timestamp), AvailableBytes: count(mem.AvailableBytes), UsageBytes: count(mem.UsageBytes),
			WorkingSetBytes: count(mem.WorkingSetBytes), RSSBytes: count(mem.RssBytes), PageFaults: count(mem.PageFaults), MajorPageFaults: count(mem.MajorPageFaults)}
	}
	if swap := st.GetSwap(); swap != nil {
		c.Swap = &Swap{Time: nanoTime(swap.Timestamp), SwapAvailableBytes: count(swap.SwapAvailableBytes), SwapUsageBytes: count(swap.SwapUsageBytes)}
	}
	if fs := st.GetWritableLayer(); fs != nil {
		c.Rootfs = &Filesystem{Time: nanoTime(fs.Timestamp), UsedBytes: count(fs.UsedBytes), InodesUsed: count(fs.InodesUsed)}
	}
	return c
}

func nanoTime(nanos int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanos)) }

func count(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	u := v.Value
	return &u
}

// rate sets how many nanocores are in use since the previous sample. Without a
// previous sample it sets nothing.
func (c *Collector) rate(seen map[string]sample, id string, cpu *CPU) {
	if cpu == nil || cpu.UsageCoreNanoSeconds == nil {
		return
	}
	now := sample{at: cpu.Time.Time, nanos: *cpu.UsageCoreNanoSeconds}
	before, known := c.last[id]
	switch span := now.at.Sub(before.at); {
	case known && span >= 0 && span < rateWindow:
		now = before
	case known && span > 0 && now.nanos >= before.nanos:
		cores := uint64(float64(now.nanos-before.nanos) / span.Seconds())
		now.rate = &cores
	}
	seen[id] = now
	if cpu.UsageNanoCores == nil {
		cpu.UsageNanoCores = now.rate
	}
}
