package framework

import (
	"math/rand/v2"
	"slices"

	"podium/pkg/scheduler/snapshot"
)

// asked is what a plugin answers for a shape.
type asked[Q any] struct {
	plugin Plugin
	of     Q
	weight int64 // of scores
}

// knownFilter is a filter whose answers depend on one node.
type knownFilter struct {
	asked[*column[*Status]]
	inRange RangeFilter // nil: there is none
}

// plainScore is a score that is not normalized.
type plainScore struct {
	asked[*column[int64]]
	inRange RangeScore // nil: there is none
}

// relativeScore is a score that is normalized. Its column is kept.
type relativeScore struct {
	asked[*column[int64]]
	normalize Normalize
}

// In answers.refused: the row fits the pod, or has no node.
const (
	fits   = int8(-1)
	absent = int8(-2)
)

// answers are the cached results of all plugins for pods of one shape, by row.
type answers struct {
	parts          []partKey
	filters        []knownFilter
	clusterFilters []asked[*follower[ClusterFilter]]
	plain          []plainScore
	relative       []relativeScore
	clusterScores  []asked[*follower[ClusterScore]]

	position int64     // position in the snapshot's journal up to which the fields below are current
	asking   []int8    // indices of the filters that may reject a row; set by update
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
}

// update evaluates the rows that have changed.
func (v *answers) update(snap *snapshot.Snapshot) {
	v.updateParts(snap)
	v.grow(snap.Rows())
	if v.position < 0 {
		v.updateAll(snap)
	} else {
		for n := range snap.ChangedRows(v.position) {
			v.updateRow(n)
		}
	}
	v.position = snap.Position()
}

// updateParts brings what is shared with other shapes up to date.
func (v *answers) updateParts(snap *snapshot.Snapshot) {
	v.asking = v.asking[:0]
	for i, f := range v.filters {
		if f.of.update(snap); !f.of.empty() {
			v.asking = append(v.asking, int8(i))
		}
	}
	for _, q := range v.plain {
		q.of.update(snap)
	}
	for _, q := range v.relative {
		q.of.update(snap)
	}
	for _, f := range v.clusterFilters {
		f.of.update(snap)
	}
	for _, q := range v.clusterScores {
		q.of.update(snap)
	}
}

// grow makes room for new rows.
func (v *answers) grow(rows int) {
	more := rows - len(v.refused)
	if more <= 0 {
		return
	}
	v.refused = extended(v.refused, more, absent)
	v.score = extended(v.score, more, 0)
}

// extended appends n times x to a list.
func extended[T comparable](list []T, n int, x T) []T {
	list = slices.Grow(list, n)[:len(list)+n]
	added := list[len(list)-n:]
	var zero T
	if x == zero {
		clear(added)
		return list
	}
	for i := range added {
		added[i] = x
	}
	return list
}

func (v *answers) updateRow(n snapshot.Node) {
	row := n.Row()
	before := v.refused[row]
	refused, status := v.firstKnown(n)
	if (before == fits) != (refused == fits) && v.same {
		v.same = false
	}
	v.refuse(row, refused, status)
	if refused != fits {
		return
	}
	var score int64
	for _, q := range v.plain {
		score += q.weight * q.of.at(n)
	}
	v.score[row] = score
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

// firstKnown returns the index and status of the first filter that rejects a node as it is in
// the snapshot.
func (v *answers) firstKnown(n snapshot.Node) (int8, *Status) {
	if !n.Exists() {
		return absent, nil
	}
	for _, i := range v.asking {
		if status := v.filters[i].of.at(n); status != nil {
			return i, status
		}
	}
	return fits, nil
}

// updateFilters tells the cluster filters of a node that a trial has changed, or changed back.
func (v *answers) updateFilters(n snapshot.Node) {
	for _, f := range v.clusterFilters {
		f.of.ask.Update(n)
	}
}

// firstRefusal is firstKnown for a node that a trial has changed.
func (v *answers) firstRefusal(n snapshot.Node) (int8, *Status) {
	for i, f := range v.filters {
		if status := f.of.ask(n); status != nil {
			return int8(i), status
		}
	}
	return fits, nil
}

// clusterRefusal returns the first ClusterFilter that rejects a node, and its status.
func (v *answers) clusterRefusal(n snapshot.Node) (Plugin, *Status) {
	for _, f := range v.clusterFilters {
		if status := f.of.ask.Filter(n); status != nil {
			return f.plugin, status
		}
	}
	return nil, nil
}

// best returns the feasible row with the highest total score. There must be one.
func (v *answers) best(snap *snapshot.Snapshot, rnd *rand.Rand) (row int, score int64) {
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
	v.same = plain
	list, n := slices.Grow(v.feasible[:0], len(v.refused))[:len(v.refused)], 0
	for r, refused := range v.refused {
		list[n] = int32(r)
		if refused == fits && (plain || v.accepts(snap, pod, r)) {
			n++
		}
	}
	v.feasible = list[:n]
}

// accepts reports whether the filters that depend on the cluster accept a row.
func (v *answers) accepts(snap *snapshot.Snapshot, pod *snapshot.Pod, row int) bool {
	_, status := v.why(snap, pod, row)
	return status == nil
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
		if isEmpty(q.of.ask) {
			continue
		}
		v.scores = slices.Grow(v.scores[:0], len(v.feasible))[:len(v.feasible)]
		clear(v.scores)
		q.of.ask.Score(v.feasible, v.scores)
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
	if q.of.set == 0 {
		if q.normalize == Lowest {
			for i := range totals {
				totals[i] += q.weight * MaxNodeScore
			}
		}
		return
	}
	var highest int64
	raw := q.of.values
	for _, r := range rows {
		highest = max(highest, raw[r])
	}
	for i, r := range rows {
		share := int64(0)
		if highest > 0 {
			share = raw[r] * MaxNodeScore / highest
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
