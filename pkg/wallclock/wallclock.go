// Package wallclock measures ages by times that were read from a clock which may be set
// meanwhile, or from the clock of another machine.
package wallclock

import "time"

// Anchor translates a time that an API object, a file or a runtime records, as it is seen
// for the first time, into a time of this process: ages and deadlines that are computed
// from the result use the monotonic clock, so that they do not change when the clock is set.
// now is the present time, with its monotonic reading. A time in the future counts as now:
// the clock that has recorded it is ahead, or this one was set back.
func Anchor(recorded, now time.Time) time.Time {
	return now.Add(-max(0, now.Sub(recorded)))
}
