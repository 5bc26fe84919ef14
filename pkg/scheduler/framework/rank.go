package framework

import (
	"cmp"
	"slices"

	"podium/pkg/scheduler/snapshot"
)

// Ranked is a node that fits a pod, with its scores.
type Ranked struct {
	Node   string           `json:"node"`
	Total  int64            `json:"total"`
	Scores map[string]int64 `json:"scores"` // by plugin, weighted; they add up to Total
}

// Rank returns the nodes that fit a pod, the best first, with the scores of each
// plugin. Schedule would choose one with the highest total. It is slower than
// Schedule, and changes as little.
func (s *Scheduler) Rank(snap *snapshot.Snapshot, pod *snapshot.Pod) []Ranked {
	v := s.answersFor(snap, pod)
	v.findFeasible(snap, pod)
	v.sumScores()
	out := make([]Ranked, len(v.feasible))
	for i, row := range v.feasible {
		out[i] = Ranked{Node: snap.At(int(row)).Name(), Total: v.totals[i], Scores: map[string]int64{}}
		for _, q := range v.plain {
			out[i].Scores[q.plugin.Name()] += q.weight * q.of.ask(snap.At(int(row)))
		}
	}
	add := func(plugin Plugin, weight int64, scores []int64) {
		for i, score := range scores {
			out[i].Scores[plugin.Name()] += weight * score
		}
	}
	for i := range v.relative {
		scores := make([]int64, len(v.feasible))
		v.relative[i].add(v.feasible, scores)
		add(v.relative[i].plugin, 1, scores)
	}
	for _, q := range v.clusterScores {
		scores := make([]int64, len(v.feasible))
		if !isEmpty(q.of.ask) {
			q.of.ask.Score(v.feasible, scores)
		}
		add(q.plugin, q.weight, scores)
	}
	slices.SortFunc(out, func(a, b Ranked) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Node, b.Node)) })
	return out
}
