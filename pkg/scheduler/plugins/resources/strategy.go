package resources

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// Strategy is how Fit scores nodes: the field scoringStrategy of upstream's
// NodeResourcesFitArgs.
type Strategy struct {
	Type      string     `json:"type"` // LeastAllocated, MostAllocated or RequestedToCapacityRatio
	Resources []Resource `json:"resources,omitempty"`
	Ratio     struct {
		Shape []Point `json:"shape"`
	} `json:"requestedToCapacityRatio,omitempty"`
}

// Resource is a resource and its weight, 1 to 100.
type Resource struct {
	Name   corev1.ResourceName `json:"name"`
	Weight int64               `json:"weight,omitempty"` // default 1
}

// Point says how good a utilization, in percent, is, from 0 to 10.
type Point struct {
	Utilization int64 `json:"utilization"`
	Score       int64 `json:"score"`
}

// Types of strategies.
const (
	leastAllocated = "LeastAllocated"
	mostAllocated  = "MostAllocated"
	ratio          = "RequestedToCapacityRatio"
)

func cpuAndMemory() []Resource {
	return []Resource{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}}
}

// complete sets defaults and validates.
func (s *Strategy) complete() error {
	if s.Type == "" {
		s.Type = leastAllocated
	}
	if !slices.Contains([]string{leastAllocated, mostAllocated, ratio}, s.Type) {
		return fmt.Errorf("scoringStrategy.type: %q is not %s, %s or %s", s.Type, leastAllocated, mostAllocated, ratio)
	}
	var err error
	if s.Resources, err = completeResources(s.Resources); err != nil {
		return err
	}
	if s.Type != ratio {
		return nil
	}
	shape := s.Ratio.Shape
	if len(shape) == 0 {
		return fmt.Errorf("requestedToCapacityRatio.shape: at least one point is needed")
	}
	for i, p := range shape {
		if p.Utilization < 0 || p.Utilization > 100 || p.Score < 0 || p.Score > 10 || i > 0 && p.Utilization <= shape[i-1].Utilization {
			return fmt.Errorf("requestedToCapacityRatio.shape[%d]: utilization must rise within 0 to 100, the score must be within 0 to 10", i)
		}
	}
	return nil
}

func completeResources(list []Resource) ([]Resource, error) {
	if len(list) == 0 {
		return cpuAndMemory(), nil
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].Weight == 0 {
			list[i].Weight = 1
		}
		if list[i].Name == "" || list[i].Weight < 1 || list[i].Weight > 100 {
			return nil, fmt.Errorf("resources[%d]: a name is required, and a weight must be within 1 to 100", i)
		}
	}
	return list, nil
}

// share is a resource that counts for a pod.
type share struct {
	name   corev1.ResourceName
	basic  basic
	want   int64
	weight int64
}

// basic is one of the resources that most pods request, which are found without their names.
type basic int8

const (
	extended basic = iota // none of them
	cpu
	memory
	ephemeral
)

func basicOf(name corev1.ResourceName) basic {
	switch name {
	case corev1.ResourceCPU:
		return cpu
	case corev1.ResourceMemory:
		return memory
	case corev1.ResourceEphemeralStorage:
		return ephemeral
	}
	return extended
}

// of returns the amount of the resource.
func (s *share) of(r *snapshot.Resources) int64 {
	switch s.basic {
	case cpu:
		return r.CPU
	case memory:
		return r.Memory
	case ephemeral:
		return r.Ephemeral
	}
	return r.Extended[s.name]
}

// occupied is of what a node's pods request, with defaults for containers that request no
// CPU or memory.
func (s *share) occupied(used *snapshot.Amounts) int64 {
	switch s.basic {
	case cpu:
		return used.NonZeroCPU
	case memory:
		return used.NonZeroMemory
	}
	return s.of(&used.Resources)
}

// shares returns the resources of the list that count for a pod: extended resources only if it
// requests them. wants are its requests.
func shares(list []Resource, wants *snapshot.Resources) []share {
	var out []share
	for _, r := range list {
		s := share{name: r.Name, basic: basicOf(r.Name), weight: r.Weight}
		if s.want = s.of(wants); s.basic != extended || s.want > 0 {
			out = append(out, s)
		}
	}
	return out
}

// score returns the weighted average over the resources.
func (s *Strategy) score(shares []share, n snapshot.Node) int64 {
	alloc, used := n.Amounts()
	var sum, weights int64
	for i := range shares {
		r := &shares[i]
		capacity := r.of(&alloc.Resources)
		if capacity == 0 {
			continue
		}
		points := s.points(r.occupied(used)+r.want, capacity)
		if points == 0 && s.Type == ratio {
			continue // as upstream
		}
		sum += points * r.weight
		weights += r.weight
	}
	switch {
	case weights == 0:
		return 0
	case s.Type == ratio:
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// unused is score of the default strategy, LeastAllocated, for which each node is asked for each new
// shape: it is twice as fast.
func unused(shares []share, n snapshot.Node) int64 {
	alloc, used := n.Amounts()
	var sum, weights int64
	for i := range shares {
		r := &shares[i]
		if capacity := r.of(&alloc.Resources); capacity != 0 {
			sum += free(capacity-r.occupied(used)-r.want, capacity) * r.weight
			weights += r.weight
		}
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// exactly is the capacity below which a quotient that is up to 100 and no integer is further from
// the next one than floating-point division errs: such division is several times as fast.
const exactly = 1 << 44

// free rates what would be left of a capacity, from 0 to MaxNodeScore.
func free(left, capacity int64) int64 {
	if left <= 0 {
		return 0
	}
	if capacity < exactly {
		return int64(float64(left*framework.MaxNodeScore) / float64(capacity))
	}
	return left * framework.MaxNodeScore / capacity
}

// points rates one resource, from 0 to MaxNodeScore.
func (s *Strategy) points(used, capacity int64) int64 {
	switch s.Type {
	case mostAllocated:
		return min(used, capacity) * framework.MaxNodeScore / capacity
	case ratio:
		return s.onShape(min(used, capacity) * 100 / capacity)
	}
	return free(capacity-used, capacity)
}

// onShape interpolates between the points of the shape.
func (s *Strategy) onShape(utilization int64) int64 {
	const scale = framework.MaxNodeScore / 10
	shape := s.Ratio.Shape
	for i, p := range shape {
		if utilization > p.Utilization {
			continue
		}
		if i == 0 {
			return p.Score * scale
		}
		before := shape[i-1]
		return before.Score*scale + (p.Score-before.Score)*scale*(utilization-before.Utilization)/(p.Utilization-before.Utilization)
	}
	return shape[len(shape)-1].Score * scale
}
