package interpodaffinity

import (
	"math"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
	"podium/pkg/scheduler/topology"
)

// PreScore skips pods without preferred terms that no term of another pod selects.
func (p Plugin) PreScore(pod *snapshot.Pod) framework.ClusterScore {
	s := &score{}
	for _, t := range pod.Resolved {
		if w := p.weight(t, 0); w != 0 {
			s.add(w, t.TopologyKey, func(o *snapshot.Pod) bool { return t.Matches(o.Pod, nil) })
		}
	}
	for _, t := range pod.Matching {
		if w := p.weight(t.Term, p.HardPodAffinityWeight); w != 0 {
			s.add(w, t.TopologyKey, func(o *snapshot.Pod) bool { return o.Has(t) })
		}
	}
	if len(s.counts) == 0 {
		return nil
	}
	return s
}

// weight returns what a pod counts for a term; hard is the weight of required affinity.
func (Plugin) weight(t *snapshot.Term, hard int64) int64 {
	switch t.Kind {
	case snapshot.PreferredAffinity:
		return int64(t.Weight)
	case snapshot.PreferredAntiAffinity:
		return -int64(t.Weight)
	case snapshot.RequiredAffinity:
		return hard
	}
	return 0
}

// score counts the pods for each term that has a weight.
type score struct {
	counts
	weights []int64
}

func (s *score) add(weight int64, key string, match func(*snapshot.Pod) bool) {
	s.weights = append(s.weights, weight)
	s.counts = append(s.counts, topology.New(key, match))
}

// Score implements framework.ClusterScore: the sums of weights, such that the highest becomes
// MaxNodeScore and the lowest 0.
func (s *score) Score(rows []int32, scores []int64) {
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	for i, r := range rows {
		for j, x := range s.counts {
			if id, ok := x.Domain(int(r)); ok {
				scores[i] += s.weights[j] * int64(x.Pods(id))
			}
		}
		lowest, highest = min(lowest, scores[i]), max(highest, scores[i])
	}
	for i := range scores {
		if highest == lowest {
			scores[i] = 0
			continue
		}
		scores[i] = int64(float64(framework.MaxNodeScore) * (float64(scores[i]-lowest) / float64(highest-lowest)))
	}
}
