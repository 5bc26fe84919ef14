package resources

import (
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/podspec"
)

// Ranges and units of the kernel, and OOM scores and priorities of upstream.
const (
	sharesPerCPU    = 1024
	MinShares       = 2
	maxShares       = 262144
	QuotaPeriod     = 100000 // microseconds
	minQuota        = 1000
	milliPerCPU     = 1000
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	systemPriority  = 2000000000
	systemNodeClass = "system-node-critical"
)

// Shares returns the CPU shares of a request in millicores.
func Shares(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return MinShares
	}
	return min(max(milliCPU*sharesPerCPU/milliPerCPU, MinShares), maxShares)
}

// Quota returns the CPU time in microseconds per QuotaPeriod for a limit in
// millicores; 0: no limit.
func Quota(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*QuotaPeriod/milliPerCPU, minQuota)
}

// Weight converts CPU shares (2..262144) to a cgroup v2 weight (1..10000).
func Weight(shares int64) int64 {
	return 1 + (min(max(shares, MinShares), maxShares)-2)*9999/262142
}

// OOMScoreAdj returns the container's oom_score_adj: the larger the share of the
// node's memory that it requests, the later the kernel kills it. memoryCapacity is in bytes.
func OOMScoreAdj(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64) int64 {
	if pod.Spec.PriorityClassName == systemNodeClass || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemPriority+1000 {
		return oomGuaranteed
	}
	switch QOS(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	if memoryCapacity <= 0 {
		return oomBestEffort - 1
	}
	request := c.Resources.Requests.Memory().Value()
	if podspec.Sidecar(c) {
		request = max(request, leastRequest(pod))
	}
	request += sharedRequest(pod)
	adj := 1000 - 1000*request/memoryCapacity
	return min(max(adj, 1000+oomGuaranteed), oomBestEffort-1)
}

// leastRequest returns the smallest memory request of an app container: sidecars are
// not killed before the containers that they serve.
func leastRequest(pod *corev1.Pod) int64 {
	least := int64(math.MaxInt64)
	for i := range pod.Spec.Containers {
		least = min(least, pod.Spec.Containers[i].Resources.Requests.Memory().Value())
	}
	return least
}

// sharedRequest returns the container's part of the memory that the pod itself requests
// and no container does, in bytes.
func sharedRequest(pod *corev1.Pod) int64 {
	r := pod.Spec.Resources
	if r == nil {
		return 0
	}
	request, ok := r.Requests[corev1.ResourceMemory]
	if !ok {
		return 0
	}
	sum := podresources.AggregateContainerRequests(pod, podresources.PodResourcesOptions{})
	containers := int64(0)
	for range podspec.Main(pod) {
		containers++
	}
	return max(request.Value()-sum.Memory().Value(), 0) / max(containers, 1)
}

// limitOf returns the container's limit or, if it has none, the pod's.
func limitOf(pod *corev1.Pod, c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if r := pod.Spec.Resources; r != nil && limit.IsZero() {
		return r.Limits[name]
	}
	return limit
}

// Container returns the resources of one container for the runtime. A container gets none of the
// node's huge pages unless it or its pod asks for them, and no swap. unified is Cgroups.Unified.
func Container(pod *corev1.Pod, c *corev1.Container, capacity corev1.ResourceList, unified map[string]string) *runtimeapi.LinuxContainerResources {
	request, hasRequest := c.Resources.Requests[corev1.ResourceCPU]
	limit, memory := limitOf(pod, c, corev1.ResourceCPU), limitOf(pod, c, corev1.ResourceMemory)
	if !hasRequest && !limit.IsZero() {
		request = limit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          Shares(request.MilliValue()),
		CpuPeriod:          QuotaPeriod,
		CpuQuota:           Quota(limit.MilliValue()),
		MemoryLimitInBytes: memory.Value(),
		OomScoreAdj:        OOMScoreAdj(pod, c, capacity.Memory().Value()),
	}
	r.HugepageLimits = hugePages(pod, c, capacity)
	if unified != nil {
		r.Unified = maps.Clone(unified)
	} else {
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes // no swap; cgroup v1 cannot say that without a limit
	}
	return r
}

// Group holds the settings of a cgroup. Fields that are 0 stay at the kernel's value.
type Group struct {
	Shares int64
	Quota  int64 // microseconds per QuotaPeriod
	Memory int64 // bytes
	PIDs   int64
	// HugePages is bytes by the kernel's name of the page size; sizes without an entry stay as they are.
	HugePages map[string]int64
}

// Or returns a group with the higher limits of both; 0 stands for no limit.
func (g Group) Or(other Group) Group {
	higher := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	}
	return Group{
		Shares: max(g.Shares, other.Shares), Quota: higher(g.Quota, other.Quota),
		Memory: higher(g.Memory, other.Memory), PIDs: higher(g.PIDs, other.PIDs),
		HugePages: g.HugePages, // cannot be resized
	}
}

// Pod returns the settings of a pod's cgroup. podPIDs is its limit of process ids;
// 0: no limit.
func Pod(pod *corev1.Pod, podPIDs int64) Group {
	requests, limits := Requests(pod), Limits(pod)
	request := requests.Cpu().MilliValue()
	if _, has := requests[corev1.ResourceCPU]; !has {
		request = limits.Cpu().MilliValue()
	}
	return Group{
		Shares: Shares(request),
		Quota:  Quota(limits.Cpu().MilliValue()),
		Memory: limits.Memory().Value(),
		PIDs:   podPIDs,

		HugePages: podHugePages(requests),
	}
}

// Burstable returns the settings of the burstable class: the CPU shares of the sum of
// its pods' requests.
func Burstable(pods []*corev1.Pod) Group {
	var milli int64
	for _, pod := range pods {
		if QOS(pod) == corev1.PodQOSBurstable {
			requests := Requests(pod)
			milli += requests.Cpu().MilliValue()
		}
	}
	return Group{Shares: Shares(min(milli, math.MaxInt32))}
}
