package cronjob

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// maxMissed is the number of missed runs beyond which the controller warns.
const maxMissed = 100

// schedule returns when a CronJob runs: in its time zone, or in that of this process. warn is
// the event that a schedule deserves.
func schedule(cj *batchv1.CronJob) (s cron.Schedule, warn *event) {
	text := cj.Spec.Schedule
	if cj.Spec.TimeZone != nil {
		if _, err := time.LoadLocation(*cj.Spec.TimeZone); err != nil {
			return nil, warning("UnknownTimeZone", "invalid timeZone: %q: %s", *cj.Spec.TimeZone, err)
		}
	}
	if strings.Contains(text, "TZ") {
		warn = warning("UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", text)
	} else if cj.Spec.TimeZone != nil {
		text = fmt.Sprintf("TZ=%s %s", *cj.Spec.TimeZone, text)
	}
	s, err := parse(text)
	if err != nil {
		return nil, warning("UnparseableSchedule", "unparseable schedule: %s : %s", cj.Spec.Schedule, err)
	}
	return s, warn
}

// parse parses a schedule. The parser panics on some values with a time zone.
func parse(text string) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return cron.ParseStandard(text)
}

// mostRecent returns the last time after from, and not after now, at which s is due; zero if
// there is none. It looks at ever longer times before now, so that its cost does not depend
// on how long ago from is.
func mostRecent(s cron.Schedule, from, now time.Time) time.Time {
	if every, ok := s.(cron.ConstantDelaySchedule); ok { // counts from its last run
		first := every.Next(from)
		if first.After(now) {
			return time.Time{}
		}
		return first.Add(now.Sub(first).Truncate(every.Delay))
	}
	for back := time.Minute; ; back *= 2 {
		start := now.Add(-back)
		if !start.After(from) {
			start = from
		}
		var last time.Time
		for t := s.Next(start); !t.IsZero() && !t.After(now); t = s.Next(t) {
			last = t
		}
		if !last.IsZero() || start.Equal(from) {
			return last
		}
	}
}

// manyMissed reports whether s is due more than maxMissed times after from, and not after now.
func manyMissed(s cron.Schedule, from, now time.Time) bool {
	n := 0
	for t := s.Next(from); !t.IsZero() && !t.After(now) && n <= maxMissed; t = s.Next(t) {
		n++
	}
	return n > maxMissed
}
