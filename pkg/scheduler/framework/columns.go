package framework

import "podium/pkg/scheduler/snapshot"

// part is what one plugin answers for pods of which it reads the same values: shapes that
// differ in what other plugins read share it.
type part struct {
	shapes int // that use it

	filter        *column[*Status]
	rangeFilter   RangeFilter // nil: there is none
	score         *column[int64]
	rangeScore    RangeScore // nil: there is none
	clusterFilter *follower[ClusterFilter]
	clusterScore  *follower[ClusterScore]
}

// newPart calls PreFilter and PreScore of a plugin.
func newPart(w Weighted, pod *snapshot.Pod) *part {
	p := &part{}
	switch f := w.Plugin.(type) {
	case FilterPlugin:
		if q := f.PreFilter(pod); q != nil {
			p.filter = &column[*Status]{ask: q}
			if r, ok := f.(RangeFilterPlugin); ok {
				p.rangeFilter = r.PreFilterRange(pod)
			}
		}
	case ClusterFilterPlugin:
		if q := f.PreFilter(pod); q != nil {
			p.clusterFilter = &follower[ClusterFilter]{ask: q, position: -1}
		}
	}
	if w.Weight == 0 {
		return p
	}
	switch s := w.Plugin.(type) {
	case ScorePlugin:
		if q := s.PreScore(pod); q != nil {
			p.score = &column[int64]{ask: q}
			if s.Normalize() != AsIs {
				p.score.keep()
			}
			if r, ok := s.(RangeScorePlugin); ok {
				p.rangeScore = r.PreScoreRange(pod)
			}
		}
	case ClusterScorePlugin:
		if q := s.PreScore(pod); q != nil {
			p.clusterScore = &follower[ClusterScore]{ask: q, position: -1}
		}
	}
	return p
}

// share prepares the part for one more shape. Answers that several shapes need are kept for
// all rows; those that only one needs, such as the ones about resource requests, would cost
// more than they save.
func (p *part) share() {
	if p.shapes++; p.shapes == 1 {
		return
	}
	if p.filter != nil {
		p.filter.keep()
	}
	if p.score != nil {
		p.score.keep()
	}
}

// column is a function of nodes whose values may be kept by row.
type column[T comparable] struct {
	ask func(snapshot.Node) T

	kept     bool
	position int64 // in the snapshot's journal up to which values are current
	values   []T   // by row; the zero value for rows without a node
	set      int   // number of values that are not zero
}

func (c *column[T]) keep() {
	if !c.kept {
		c.kept, c.position = true, -1
	}
}

// at returns the value of a row that has a node.
func (c *column[T]) at(n snapshot.Node) T {
	if c.kept {
		return c.values[n.Row()]
	}
	return c.ask(n)
}

// empty reports whether the values are known to be zero for all rows.
func (c *column[T]) empty() bool { return c.kept && c.set == 0 }

// update brings the kept values up to date.
func (c *column[T]) update(snap *snapshot.Snapshot) {
	if !c.kept {
		return
	}
	var none T
	if more := snap.Rows() - len(c.values); more > 0 {
		c.values = extended(c.values, more, none)
	}
	for n := range snap.ChangedRows(c.position) {
		value := none
		if n.Exists() {
			value = c.ask(n)
		}
		old := &c.values[n.Row()]
		if *old != none {
			c.set--
		}
		if *old = value; value != none {
			c.set++
		}
	}
	c.position = snap.Position()
}

// follower is a ClusterFilter or ClusterScore with the position in the snapshot's journal
// up to which it is current.
type follower[Q interface{ Update(snapshot.Node) }] struct {
	ask      Q
	position int64
}

func (f *follower[Q]) update(snap *snapshot.Snapshot) {
	for n := range snap.ChangedRows(f.position) {
		f.ask.Update(n)
	}
	f.position = snap.Position()
}
