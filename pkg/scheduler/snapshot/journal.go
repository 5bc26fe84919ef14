package snapshot

// journal remembers which rows changed, in order, so that what was computed
// from them can be brought up to date by looking at those alone.
type journal struct {
	first int64 // position of rows[0]
	rows  []int32
}

// maxJournal bounds the memory; who is further behind starts afresh.
const maxJournal = 1 << 16

func (j *journal) note(row int) {
	if len(j.rows) == maxJournal {
		half := maxJournal / 2
		j.first += int64(half)
		j.rows = append(j.rows[:0], j.rows[half:]...)
	}
	j.rows = append(j.rows, int32(row))
}

// Position is where the journal ends now.
func (s *Snapshot) Position() int64 { return s.journal.first + int64(len(s.journal.rows)) }

// ChangedSince lists the rows that changed after a position, some of them more
// than once. known is false when that is too long ago.
func (s *Snapshot) ChangedSince(position int64) (rows []int32, known bool) {
	if position < s.journal.first {
		return nil, false
	}
	return s.journal.rows[position-s.journal.first:], true
}
