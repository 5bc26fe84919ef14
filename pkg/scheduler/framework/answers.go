package framework

import (
	"math/rand/v2"
	"slices"

	"podium/pkg/scheduler/snapshot"
)

// asked is a plugin's prepared function.
type asked[Q any] struct {
	plugin Plugin
	ask    Q
	weight int64 // of scores
}

type relativeScore struct {
	asked[NodeScore]
	normalize Normalize
	raw       []int64 // by row
}

// In answers.refused: the row fits the pod, or has no node.
const (
	fits   = int8(-1)
	absent = int8(-2)
)

// answers are the cached results of all plugins for pods of one shape, by row.
type answers struct {
	filters        []asked[NodeFilter]
	clusterFilters []asked[ClusterFilter]
	plain          []asked[NodeScore]
	relative       []relativeScore
	clusterScores  []asked[ClusterScore]

	position int64     // position in the snapshot's journal up to which the fields below are current
	refused  []int8    // index of the first of filters that rejects the row, or fits, or absent
	statuses []*Status // its status
	score    []int64   // weighted sum of plain, of rows that fit

	feasible []int32 // rows that no filter rejects, and their total scores, in this cycle
	totals   []int64
	scores   []int64 // buffer
}

// update evaluates the rows that have changed.
func (v *answers) update(snap *snapshot.Snapshot) {
	changed, known := snap.ChangedSince(v.position)
	v.grow(snap.Rows())
	if !known || len(changed) > snap.Rows() {
		for row := range snap.Rows() {
			v.updateRow(snap.At(row))
		}
	} else {
		for _, row := range changed {
			v.updateRow(snap.At(int(row)))
		}
	}
	v.position = snap.Position()
}

// grow makes room for new rows.
func (v *answers) grow(rows int) {
	more := rows - len(v.refused)
	if more <= 0 {
		return
	}
	v.refused = append(v.refused, slices.Repeat([]int8{absent}, more)...)
	v.statuses = append(v.statuses, make([]*Status, more)...)
	v.score = append(v.score, make([]int64, more)...)
	for i := range v.relative {
		v.relative[i].raw = append(v.relative[i].raw, make([]int64, more)...)
	}
}

func (v *answers) updateRow(n snapshot.Node) {
	v.updateFilters(n)
	for _, q := range v.clusterScores {
		q.ask.Update(n)
	}
	row := n.Row()
	if v.refused[row], v.statuses[row] = v.firstRefusal(n); v.refused[row] != fits {
		return
	}
	var score int64
	for _, q := range v.plain {
		score += q.weight * q.ask(n)
	}
	v.score[row] = score
	for i := range v.relative {
		v.relative[i].raw[row] = v.relative[i].ask(n)
	}
}

func (v *answers) updateFilters(n snapshot.Node) {
	for _, q := range v.clusterFilters {
		q.ask.Update(n)
	}
}

func (v *answers) firstRefusal(n snapshot.Node) (int8, *Status) {
	if !n.Exists() {
		return absent, nil
	}
	for i, f := range v.filters {
		if status := f.ask(n); status != nil {
			return int8(i), status
		}
	}
	return fits, nil
}

// clusterRefusal returns the first ClusterFilter that rejects a node, and its status.
func (v *answers) clusterRefusal(n snapshot.Node) (Plugin, *Status) {
	for _, f := range v.clusterFilters {
		if status := f.ask.Filter(n); status != nil {
			return f.plugin, status
		}
	}
	return nil, nil
}

// best finds the feasible row with the highest total score; row is -1 if no
// row is feasible.
func (v *answers) best(snap *snapshot.Snapshot, pod *snapshot.Pod, rnd *rand.Rand) (row int, score int64) {
	v.findFeasible(snap, pod)
	v.sumScores()
	row = -1
	ties := 0
	for i, r := range v.feasible {
		total := v.totals[i]
		switch {
		case row < 0 || total > score:
			row, score, ties = int(r), total, 1
		case total == score:
			ties++
			if prefer(snap, rnd, int(r), row, ties) {
				row = int(r)
			}
		}
	}
	return row, score
}

func (v *answers) findFeasible(snap *snapshot.Snapshot, pod *snapshot.Pod) {
	v.feasible = v.feasible[:0]
	plain := len(v.clusterFilters) == 0 && !snap.HasNominees()
	for r, refused := range v.refused {
		if refused != fits {
			continue
		}
		if !plain {
			if _, status := v.why(snap, pod, r); status != nil {
				continue
			}
		}
		v.feasible = append(v.feasible, int32(r))
	}
}

// sumScores sets totals, the weighted sums of all scores of the feasible rows.
func (v *answers) sumScores() {
	v.totals = slices.Grow(v.totals[:0], len(v.feasible))[:len(v.feasible)]
	for i, r := range v.feasible {
		v.totals[i] = v.score[r]
	}
	for i := range v.relative {
		v.relative[i].add(v.feasible, v.totals)
	}
	v.scores = slices.Grow(v.scores[:0], len(v.feasible))[:len(v.feasible)]
	for _, q := range v.clusterScores {
		clear(v.scores)
		q.ask.Score(v.feasible, v.scores)
		for i, score := range v.scores {
			v.totals[i] += q.weight * score
		}
	}
}

// add adds the normalized scores of the rows to totals.
func (q *relativeScore) add(rows []int32, totals []int64) {
	var highest int64
	for _, r := range rows {
		highest = max(highest, q.raw[r])
	}
	for i, r := range rows {
		share := int64(0)
		if highest > 0 {
			share = q.raw[r] * MaxNodeScore / highest
		}
		if q.normalize == Lowest {
			share = MaxNodeScore - share
		}
		totals[i] += q.weight * share
	}
}

// prefer chooses between nodes of equal score: each of n with the same probability or, if rnd
// is nil, the first by name.
func prefer(snap *snapshot.Snapshot, rnd *rand.Rand, candidate, present, n int) bool {
	if rnd == nil {
		return snap.At(candidate).Name() < snap.At(present).Name()
	}
	return rnd.IntN(n) == 0
}

// maxShapes is how many shapes are cached; a busy cluster has few at a time.
const maxShapes = 128

// shapes caches the answers by shape. It evicts the least recently used one.
type shapes struct {
	by    map[string]*shapeEntry
	clock int64
}

type shapeEntry struct {
	answers *answers
	used    int64
}

// get returns the answers for a shape. It calls make if they are not cached.
func (s *shapes) get(shape []byte, make func() *answers) *answers {
	e := s.by[string(shape)]
	if e == nil {
		if len(s.by) >= maxShapes {
			s.drop()
		}
		e = &shapeEntry{answers: make()}
		s.by[string(shape)] = e
	}
	s.clock++
	e.used = s.clock
	return e.answers
}

func (s *shapes) drop() {
	oldest := ""
	for name, e := range s.by {
		if oldest == "" || e.used < s.by[oldest].used {
			oldest = name
		}
	}
	delete(s.by, oldest)
}
