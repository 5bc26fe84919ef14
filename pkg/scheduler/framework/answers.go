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
	raw       []int64 // by row; 0 for rows that do not fit
	nonzero   int     // number of rows whose raw score is not 0
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
	statuses []*Status // its status; nil until there is one
	score    []int64   // weighted sum of plain, of rows that fit
	same     bool      // the rows that fit are those of feasible

	feasible []int32 // rows that no filter rejects, and their total scores, in this cycle
	totals   []int64
	scores   []int64 // buffer
}

// recycle takes over the memory of answers that nothing uses any more.
func (v *answers) recycle(old *answers) {
	v.refused, v.statuses, v.score = old.refused[:0], old.statuses[:0], old.score[:0]
	v.feasible, v.totals, v.scores = old.feasible[:0], old.totals[:0], old.scores[:0]
	for i := range min(len(v.relative), len(old.relative)) {
		v.relative[i].raw = old.relative[i].raw[:0]
	}
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
	v.refused = extended(v.refused, more, absent)
	v.score = extended(v.score, more, 0)
	for i := range v.relative {
		v.relative[i].raw = extended(v.relative[i].raw, more, 0)
	}
}

// extended appends n times x to a list.
func extended[T any](list []T, n int, x T) []T {
	list = slices.Grow(list, n)[:len(list)+n]
	for i := range list[len(list)-n:] {
		list[len(list)-n+i] = x
	}
	return list
}

func (v *answers) updateRow(n snapshot.Node) {
	v.updateFilters(n)
	for _, q := range v.clusterScores {
		q.ask.Update(n)
	}
	row := n.Row()
	before := v.refused[row]
	refused, status := v.firstRefusal(n)
	v.same = v.same && (before == fits) == (refused == fits)
	v.refuse(row, refused, status)
	if refused != fits {
		for i := range v.relative {
			v.relative[i].set(row, 0)
		}
		return
	}
	var score int64
	for _, q := range v.plain {
		score += q.weight * q.ask(n)
	}
	v.score[row] = score
	for i := range v.relative {
		v.relative[i].set(row, v.relative[i].ask(n))
	}
}

// refuse notes which filter rejects a row, if any.
func (v *answers) refuse(row int, refused int8, status *Status) {
	v.refused[row] = refused
	if more := len(v.refused) - len(v.statuses); status != nil && more > 0 {
		v.statuses = extended(v.statuses, more, nil)
	}
	if row < len(v.statuses) {
		v.statuses[row] = status
	}
}

func (q *relativeScore) set(row int, raw int64) {
	if q.raw[row] != 0 {
		q.nonzero--
	}
	if q.raw[row] = raw; raw != 0 {
		q.nonzero++
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
	if len(v.feasible) == 0 {
		return -1, 0
	}
	v.sumScores()
	ties := 0
	for _, total := range v.totals {
		switch {
		case ties == 0 || total > score:
			score, ties = total, 1
		case total == score:
			ties++
		}
	}
	return v.pick(snap, rnd, score, ties), score
}

// pick chooses between the nodes with a total score: each of ties with the same probability or, if rnd
// is nil, the first by name.
func (v *answers) pick(snap *snapshot.Snapshot, rnd *rand.Rand, score int64, ties int) int {
	row, skip := -1, 0
	if rnd != nil {
		skip = rnd.IntN(ties)
	}
	for i, r := range v.feasible {
		switch {
		case v.totals[i] != score:
		case rnd == nil:
			if row < 0 || snap.At(int(r)).Name() < snap.At(row).Name() {
				row = int(r)
			}
		case skip == 0:
			return int(r)
		default:
			skip--
		}
	}
	return row
}

func (v *answers) findFeasible(snap *snapshot.Snapshot, pod *snapshot.Pod) {
	plain := len(v.clusterFilters) == 0 && !snap.HasNominees()
	if plain && v.same {
		return
	}
	v.feasible, v.same = v.feasible[:0], plain
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
	for _, q := range v.clusterScores {
		if isEmpty(q.ask) {
			continue
		}
		v.scores = slices.Grow(v.scores[:0], len(v.feasible))[:len(v.feasible)]
		clear(v.scores)
		q.ask.Score(v.feasible, v.scores)
		for i, score := range v.scores {
			v.totals[i] += q.weight * score
		}
	}
}

func isEmpty(q ClusterScore) bool {
	e, ok := q.(interface{ Empty() bool })
	return ok && e.Empty()
}

// add adds the normalized scores of the rows to totals.
func (q *relativeScore) add(rows []int32, totals []int64) {
	if q.nonzero == 0 {
		if q.normalize == Lowest {
			for i := range totals {
				totals[i] += q.weight * MaxNodeScore
			}
		}
		return
	}
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

// prefer is pick for nodes that are seen one after the other: candidate is the nth of equal score.
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
		e = &shapeEntry{answers: make()}
		if len(s.by) >= maxShapes {
			e.answers.recycle(s.drop())
		}
		s.by[string(shape)] = e
	}
	s.clock++
	e.used = s.clock
	return e.answers
}

func (s *shapes) drop() *answers {
	oldest := ""
	for name, e := range s.by {
		if oldest == "" || e.used < s.by[oldest].used {
			oldest = name
		}
	}
	out := s.by[oldest].answers
	delete(s.by, oldest)
	return out
}
