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
	want   int64
	weight int64
}

// shares returns the resources of the list that count for a pod: extended resources only if it
// requests them. wants are its requests.
func shares(list []Resource, wants *snapshot.Resources) []share {
	var out []share
	for _, r := range list {
		want := amount(r.Name, wants)
		basic := r.Name == corev1.ResourceCPU || r.Name == corev1.ResourceMemory || r.Name == corev1.ResourceEphemeralStorage
		if basic || want > 0 {
			out = append(out, share{r.Name, want, r.Weight})
		}
	}
	return out
}

func amount(name corev1.ResourceName, r *snapshot.Resources) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.CPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.Ephemeral
	}
	return r.Extended[name]
}

// occupied is amount of what a node's pods request, with defaults for containers that request no
// CPU or memory.
func occupied(name corev1.ResourceName, used *snapshot.Amounts) int64 {
	switch name {
	case corev1.ResourceCPU:
		return used.NonZeroCPU
	case corev1.ResourceMemory:
		return used.NonZeroMemory
	}
	return amount(name, &used.Resources)
}

// score returns the weighted average over the resources.
func (s *Strategy) score(shares []share, n snapshot.Node) int64 {
	alloc, used := n.Amounts()
	var sum, weights int64
	for _, r := range shares {
		capacity := amount(r.name, &alloc.Resources)
		if capacity == 0 {
			continue
		}
		points := s.points(occupied(r.name, used)+r.want, capacity)
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

// points rates one resource, from 0 to MaxNodeScore.
func (s *Strategy) points(used, capacity int64) int64 {
	switch s.Type {
	case mostAllocated:
		return min(used, capacity) * framework.MaxNodeScore / capacity
	case ratio:
		return s.onShape(min(used, capacity) * 100 / capacity)
	}
	return max(0, capacity-used) * framework.MaxNodeScore / capacity
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
