package dynamicresources

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"podium/pkg/scheduler/allocation"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// Weight is upstream's weight of the plugin's scores.
const Weight = 2

// PreScore ranks nodes for pods that have requests with alternatives, and prefers those where the
// first ones are available.
func (p *Plugin) PreScore(pod *snapshot.Pod) framework.ClusterScore {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.filter(p.needs(pod.Pod), p.requests(pod))
	if !slices.ContainsFunc(f.claims, hasAlternatives) {
		return nil
	}
	return &scorer{f, map[int32]*corev1.Node{}}
}

func hasAlternatives(c allocation.Claim) bool {
	return slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return len(r.FirstAvailable) > 0 })
}

// scorer is a framework.ClusterScore.
type scorer struct {
	*filter
	nodes map[int32]*corev1.Node // by row
}

// Update implements framework.ClusterScore.
func (s *scorer) Update(n snapshot.Node) {
	s.filter.Update(n)
	if n.Exists() {
		s.nodes[int32(n.Row())] = n.Object()
	} else {
		delete(s.nodes, int32(n.Row()))
	}
}

// Score implements framework.ClusterScore.
func (s *scorer) Score(rows []int32, scores []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := int64(0)
	for i, row := range rows {
		scores[i] = s.answer(s.nodes[row]).rank
		most = max(most, scores[i])
	}
	for i := range scores {
		if most > 0 {
			scores[i] = scores[i] * framework.MaxNodeScore / most
		}
	}
}

// rank is higher the earlier the alternatives are that allocations of the claims use.
func rank(claims []allocation.Claim, allocations []*resourcev1.AllocationResult) (sum int64) {
	for i, c := range claims {
		for _, r := range c.Spec.Devices.Requests {
			at := slices.IndexFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool {
				return slices.ContainsFunc(allocations[i].Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool {
					return d.Request == r.Name+"/"+s.Name
				})
			})
			if at >= 0 {
				sum += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - at)
			}
		}
	}
	return sum
}
