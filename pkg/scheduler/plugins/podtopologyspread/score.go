package podtopologyspread

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
)

// score holds the soft constraints.
type score struct {
	spread
	seen []bool // buffer: by domain
}

// ignored marks the score of a node that lacks a topology key.
const ignored = -1

// Score implements framework.ClusterScore: the fewer matching pods a node's
// domains have, the higher its score. Unless lenient, nodes that lack a topology key get 0.
func (s *score) Score(rows []int32, scores []int64) {
	weights := s.weights(rows)
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i, r := range rows {
		scores[i] = s.raw(int(r), weights)
		if scores[i] != ignored {
			lowest, highest = min(lowest, scores[i]), max(highest, scores[i])
		}
	}
	for i, raw := range scores {
		switch {
		case raw == ignored:
			scores[i] = 0
		case highest == 0:
			scores[i] = framework.MaxNodeScore
		default:
			scores[i] = framework.MaxNodeScore * (highest + lowest - raw) / highest
		}
	}
}

// raw returns the weighted number of pods in the node's domains: lower is better.
func (s *score) raw(row int, weights []float64) int64 {
	if s.ignores(row) {
		return ignored
	}
	var sum float64
	for i, c := range s.constraints {
		id, ok := c.Domain(row)
		if !ok {
			continue
		}
		pods := c.OnNode(row)
		if c.TopologyKey != corev1.LabelHostname {
			pods = c.Pods(id)
		}
		sum += float64(pods)*weights[i] + float64(c.MaxSkew-1)
	}
	return int64(math.Round(sum))
}

func (s *score) ignores(row int) bool {
	if s.lenient {
		return false
	}
	for _, c := range s.constraints {
		if _, ok := c.Domain(row); !ok {
			return true
		}
	}
	return false
}

// weights returns a weight for each constraint that grows with the number of domains among the
// feasible nodes: otherwise a key with few domains, which have many pods each, would outweigh
// one with many.
func (s *score) weights(rows []int32) []float64 {
	out := make([]float64, len(s.constraints))
	for i, c := range s.constraints {
		s.seen = append(s.seen[:0], make([]bool, c.Domains()+1)...)
		size := 0
		for _, r := range rows {
			id, ok := c.Domain(int(r))
			if !ok {
				id = c.Domains() // nodes without the label are one domain
			}
			if s.ignores(int(r)) || s.seen[id] {
				continue
			}
			s.seen[id] = c.TopologyKey != corev1.LabelHostname
			size++
		}
		out[i] = math.Log(float64(size + 2))
	}
	return out
}
