package framework

import (
	"math/rand/v2"

	"podium/pkg/scheduler/snapshot"
)

type filterQuestion struct {
	plugin int8
	ask    func(snapshot.Node) []string
}

type scoreQuestion struct {
	ask    func(snapshot.Node) int64
	weight int64
}

type relativeQuestion struct {
	scoreQuestion
	normalize Normalize
	raw       []int64 // by row
}

// In answers.refused: the row can run the pod, or is no node.
const (
	fits   = int8(-1)
	absent = int8(-2)
)

// answers are what all plugins say about pods of one shape, by row.
type answers struct {
	filters  []filterQuestion
	plain    []scoreQuestion
	relative []relativeQuestion

	position int64   // of the snapshot's journal that the columns reflect
	refused  []int8  // the first of filters that says no, or fits, or absent
	score    []int64 // weighted sum of plain; of rows that fit
}

// update asks again about the rows that changed.
func (v *answers) update(snap *snapshot.Snapshot) {
	now := snap.Position()
	changed, known := snap.ChangedSince(v.position)
	for len(v.refused) < snap.Rows() {
		v.refused = append(v.refused, absent)
		v.score = append(v.score, 0)
		for i := range v.relative {
			v.relative[i].raw = append(v.relative[i].raw, 0)
		}
	}
	if !known || len(changed) > snap.Rows() {
		for row := range snap.Rows() {
			v.askAbout(snap, row)
		}
	} else {
		for _, row := range changed {
			v.askAbout(snap, int(row))
		}
	}
	v.position = now
}

func (v *answers) askAbout(snap *snapshot.Snapshot, row int) {
	n := snap.At(row)
	if !n.Exists() {
		v.refused[row] = absent
		return
	}
	for i, f := range v.filters {
		if len(f.ask(n)) > 0 {
			v.refused[row] = int8(i)
			return
		}
	}
	v.refused[row] = fits
	var score int64
	for _, q := range v.plain {
		score += q.weight * q.ask(n)
	}
	v.score[row] = score
	for i := range v.relative {
		v.relative[i].raw[row] = v.relative[i].ask(n)
	}
}

// best is the row with the highest total score among those that fit.
func (v *answers) best(snap *snapshot.Snapshot, rnd *rand.Rand) (row int, score int64, feasible int) {
	row = -1
	greatest := v.greatest()
	ties := 0
	for r, refused := range v.refused {
		if refused != fits {
			continue
		}
		feasible++
		total := v.score[r]
		for i := range v.relative {
			total += v.relative[i].normalized(r, greatest[i])
		}
		switch {
		case row < 0 || total > score:
			row, score, ties = r, total, 1
		case total == score:
			ties++
			if prefer(snap, rnd, r, row, ties) {
				row = r
			}
		}
	}
	return row, score, feasible
}

// prefer chooses between equals: each of n with the same chance, or without
// rnd the first by name.
func prefer(snap *snapshot.Snapshot, rnd *rand.Rand, candidate, present, n int) bool {
	if rnd == nil {
		return snap.At(candidate).Name() < snap.At(present).Name()
	}
	return rnd.IntN(n) == 0
}

// greatest is the highest raw score of each relative scorer among the rows that fit.
func (v *answers) greatest() []int64 {
	if len(v.relative) == 0 {
		return nil
	}
	out := make([]int64, len(v.relative))
	for r, refused := range v.refused {
		if refused != fits {
			continue
		}
		for i := range v.relative {
			out[i] = max(out[i], v.relative[i].raw[r])
		}
	}
	return out
}

func (q *relativeQuestion) normalized(row int, greatest int64) int64 {
	share := int64(0)
	if greatest > 0 {
		share = q.raw[row] * MaxScore / greatest
	}
	if q.normalize == Fewest {
		share = MaxScore - share
	}
	return q.weight * share
}

// maxShapes is how many shapes are remembered; a busy cluster has few at a time.
const maxShapes = 128

// shapes are the answers by shape; the one not used for longest is forgotten.
type shapes struct {
	by    map[string]*shapeEntry
	clock int64
}

type shapeEntry struct {
	answers *answers
	used    int64
}

func (s *shapes) get(shape string) *answers {
	e := s.by[shape]
	if e == nil {
		return nil
	}
	s.clock++
	e.used = s.clock
	return e.answers
}

func (s *shapes) put(shape string, v *answers) {
	if s.by == nil {
		s.by = map[string]*shapeEntry{}
	}
	if len(s.by) >= maxShapes {
		oldest := ""
		for name, e := range s.by {
			if oldest == "" || e.used < s.by[oldest].used {
				oldest = name
			}
		}
		delete(s.by, oldest)
	}
	s.clock++
	s.by[shape] = &shapeEntry{v, s.clock}
}
