package resources

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kernel's scales.
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

// Shares is the weight of a CPU request.
func Shares(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return MinShares
	}
	return min(max(milliCPU*sharesPerCPU/milliPerCPU, MinShares), maxShares)
}

// Quota is the CPU time a limit allows in each period; 0: as much as there is.
func Quota(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*QuotaPeriod/milliPerCPU, minQuota)
}

// Weight is the cgroup v2 form of shares: 2..262144 becomes 1..10000.
func Weight(shares int64) int64 {
	return 1 + (min(max(shares, MinShares), maxShares)-2)*9999/262142
}

// OOMScoreAdj says how early the kernel kills a container when memory runs out:
// the more of its node a container asked for, the later.
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
	adj := 1000 - 1000*c.Resources.Requests.Memory().Value()/memoryCapacity
	return min(max(adj, 1000+oomGuaranteed), oomBestEffort-1)
}

// Container is what the runtime is told of one container.
func Container(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64, v2 bool) *runtimeapi.LinuxContainerResources {
	request, hasRequest := c.Resources.Requests[corev1.ResourceCPU]
	limit := c.Resources.Limits.Cpu()
	if !hasRequest && !limit.IsZero() {
		request = *limit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          Shares(request.MilliValue()),
		CpuPeriod:          QuotaPeriod,
		CpuQuota:           Quota(limit.MilliValue()),
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
		OomScoreAdj:        OOMScoreAdj(pod, c, memoryCapacity),
	}
	r.HugepageLimits = hugePages(c.Resources.Limits)
	if r.MemoryLimitInBytes > 0 {
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes // no swap
		if v2 {
			r.MemorySwapLimitInBytes = 0
			r.Unified = map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}
		}
	}
	return r
}

// hugePages are the limits of huge pages, each size under the kernel's name for it.
func hugePages(limits corev1.ResourceList) []*runtimeapi.HugepageLimit {
	var out []*runtimeapi.HugepageLimit
	for name, q := range limits {
		text, is := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !is {
			continue
		}
		if size, err := resource.ParseQuantity(text); err == nil {
			out = append(out, &runtimeapi.HugepageLimit{PageSize: pageSize(size.Value()), Limit: uint64(q.Value())})
		}
	}
	slices.SortFunc(out, func(a, b *runtimeapi.HugepageLimit) int { return strings.Compare(a.PageSize, b.PageSize) })
	return out
}

// pageSize writes 2 MiB as 2MB: the kernel's units are powers of two without saying so.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for ; i < len(units)-1 && bytes%1024 == 0 && bytes > 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

// Group is what one cgroup is given. Zero fields are left as the kernel has them.
type Group struct {
	Shares int64
	Quota  int64 // microseconds of each period
	Memory int64 // bytes
	PIDs   int64
}

// Pod is the cgroup of a whole pod: what all its containers may have together.
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
	}
}

// Burstable is the weight of all burstable pods together.
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
