package snapshot

import "iter"

// journal records which rows changed, in order, so that derived state can be updated
// incrementally.
type journal struct {
	first int64 // position of rows[0]
	rows  []int32
}

// maxJournal limits the journal. A reader that is further behind must start from scratch.
const maxJournal = 1 << 16

func (j *journal) note(row int) {
	if len(j.rows) == maxJournal {
		half := maxJournal / 2
		j.first += int64(half)
		j.rows = append(j.rows[:0], j.rows[half:]...)
	}
	j.rows = append(j.rows, int32(row))
}

// Position returns the current end of the journal.
func (s *Snapshot) Position() int64 { return s.journal.first + int64(len(s.journal.rows)) }

// ChangedSince returns the rows that changed after a position, possibly more than once. known is
// false if the journal no longer contains all of them.
func (s *Snapshot) ChangedSince(position int64) (rows []int32, known bool) {
	if position < s.journal.first {
		return nil, false
	}
	return s.journal.rows[position-s.journal.first:], true
}

// ChangedRows iterates over the rows that changed after a position, possibly more than once;
// over all rows if that is less, or if the journal no longer reaches back to the position.
func (s *Snapshot) ChangedRows(position int64) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		changed, known := s.ChangedSince(position)
		if !known || len(changed) > s.Rows() {
			for row := range s.Rows() {
				if !yield(s.At(row)) {
					return
				}
			}
			return
		}
		for _, row := range changed {
			if !yield(s.At(int(row))) {
				return
			}
		}
	}
}
