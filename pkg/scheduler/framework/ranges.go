package framework

import (
	"runtime"
	"sync"

	"podium/pkg/scheduler/snapshot"
)

// fewRows is the minimum number of rows for which a goroutine saves time.
const fewRows = 5000

// updateAll evaluates all rows of new answers, in ranges.
func (v *answers) updateAll(snap *snapshot.Snapshot) {
	rows := snap.Rows()
	v.statuses, v.same = extended(v.statuses, rows-len(v.statuses), nil), false
	size := max(fewRows, (rows+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for from := size; from < rows; from += size {
		wg.Go(func() { v.updateRange(snap, from, min(from+size, rows)) })
	}
	v.updateRange(snap, 0, min(size, rows))
	wg.Wait()
}

// updateRange asks the filters and scores one after the other, each for all rows.
func (v *answers) updateRange(snap *snapshot.Snapshot, from, until int) {
	for row := from; row < until; row++ {
		if snap.At(row).Exists() {
			v.refused[row] = fits
		}
	}
	for _, i := range v.asking {
		v.filterRange(snap, i, from, until)
	}
	for i := range v.plain {
		v.scoreRange(snap, &v.plain[i], from, v.score[from:until])
	}
}

// filterRange asks one filter about the rows that none has rejected yet.
func (v *answers) filterRange(snap *snapshot.Snapshot, i int8, from, until int) {
	f := &v.filters[i]
	reject := func(row int, status *Status) {
		v.refused[row], v.statuses[row] = i, status
	}
	if f.inRange != nil && !f.of.kept {
		f.inRange(snap, from, until, func(row int) {
			if v.refused[row] == fits {
				reject(row, f.of.ask(snap.At(row)))
			}
		})
		return
	}
	for row := from; row < until; row++ {
		if v.refused[row] != fits {
			continue
		}
		if status := f.of.at(snap.At(row)); status != nil {
			reject(row, status)
		}
	}
}

// scoreRange adds one score of the rows that fit to sums.
func (v *answers) scoreRange(snap *snapshot.Snapshot, q *plainScore, from int, sums []int64) {
	if q.inRange != nil && !q.of.kept {
		q.inRange(snap, from, q.weight, sums)
		return
	}
	for i := range sums {
		if v.refused[from+i] == fits {
			sums[i] += q.weight * q.of.at(snap.At(from+i))
		}
	}
}
