package cronjob

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func newCronJob(schedule string, created time.Time, change ...func(*batchv1.CronJob)) *batchv1.CronJob {
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "cron", Namespace: "ns", UID: "cron", CreationTimestamp: metav1.Time{Time: created}},
		Spec:       batchv1.CronJobSpec{Schedule: schedule, ConcurrencyPolicy: batchv1.AllowConcurrent},
	}
	for _, f := range change {
		f(cj)
	}
	return cj
}

func inZone(zone string) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Spec.TimeZone = &zone }
}

// TestClockChanges runs CronJobs in virtual time through both changes of the clock. In New
// York, it went from 2 to 3 o'clock on 2 April 2000, and from 2 back to 1 on 29 October.
func TestClockChanges(t *testing.T) {
	for name, row := range map[string]struct {
		reason, schedule, from string
		days                   int
		want                   string
	}{
		"Skipped": {"there is no 2:30 on 2 April", "30 2 * * *", "2000-03-31", 4,
			"03-31T02:30:00-05:00 04-01T02:30:00-05:00 04-03T02:30:00-04:00"},
		"Spring": {"noon is noon", "0 12 * * *", "2000-04-01", 3,
			"04-01T12:00:00-05:00 04-02T12:00:00-04:00 04-03T12:00:00-04:00"},
		"Repeated": {"there are two 1:30 on 29 October", "30 1 * * *", "2000-10-28", 3,
			"10-28T01:30:00-04:00 10-29T01:30:00-04:00 10-29T01:30:00-05:00 10-30T01:30:00-05:00"},
		"Autumn": {"noon is noon", "0 12 * * *", "2000-10-28", 3,
			"10-28T12:00:00-04:00 10-29T12:00:00-05:00 10-30T12:00:00-05:00"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, err := time.Parse(time.DateOnly, row.from)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Until(start))
				cj := newCronJob(row.schedule, start, inZone("America/New_York"))
				var got []string
				for end := start.AddDate(0, 0, row.days); ; {
					p := decide(cj, nil, time.Now())
					if !p.run.IsZero() {
						got = append(got, newJob(cj, p.run).Annotations[batchv1.CronJobScheduledTimestampAnnotation][5:])
						cj.Status.LastScheduleTime = &metav1.Time{Time: p.run}
						if late := time.Since(p.run); late != slack {
							t.Errorf("%s starts %s late", p.run, late)
						}
					}
					if time.Now().Add(p.wait).After(end) {
						break
					}
					time.Sleep(p.wait)
				}
				if text := strings.Join(got, " "); text != row.want {
					t.Errorf("%s:\n got %s\nwant %s", row.reason, text, row.want)
				}
			})
		})
	}
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
	at := func(text string) time.Time {
		clock, err := time.Parse(time.TimeOnly, text+":00")
		if err != nil {
			t.Fatal(err)
		}
		return time.Date(2026, 1, 1, clock.Hour(), clock.Minute(), 0, 0, time.UTC)
	}
	last := func(text string) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) { cj.Status.LastScheduleTime = &metav1.Time{Time: at(text)} }
	}
	policy := func(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy = p }
	}
	deadline := func(seconds int64) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = &seconds }
	}
	job := func(text string) *batchv1.Job {
		j := newJob(newCronJob("", now), at(text))
		j.UID = types.UID(j.Name)
		return j
	}
	ended := func(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.Job {
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue}}
		return j
	}
	active := func(list ...*batchv1.Job) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) {
			for _, j := range list {
				cj.Status.Active = append(cj.Status.Active, reference(j))
			}
		}
	}
	manual := job("11:00")
	manual.Name = "manual"
	for name, row := range map[string]struct {
		reason string
		cj     *batchv1.CronJob
		jobs   []*batchv1.Job
		want   string
	}{
		"Due":        {"the schedule has come", newCronJob("0 * * * *", now, last("11:00")), nil, "run 12:00, wait 59m30.1s"},
		"NotDue":     {"it has run", newCronJob("0 * * * *", now, last("12:00")), nil, "wait 59m30.1s"},
		"MostRecent": {"only the last missed run is made up for", newCronJob("0 * * * *", now, last("08:00")), nil, "run 12:00, wait 59m30.1s"},
		"Many":       {"more than 100 are worth a warning", newCronJob("* * * * *", now, last("08:00")), nil, "run 12:00, wait 30.1s, TooManyMissedTimes"},
		"ManyLate":   {"unless the deadline excuses them", newCronJob("* * * * *", now, last("08:00"), deadline(60)), nil, "run 12:00, wait 30.1s"},
		"Late":       {"the deadline has passed", newCronJob("0 * * * *", now, last("11:00"), deadline(20)), nil, "wait 59m30.1s, MissSchedule"},
		"Every":      {"an interval counts from the last run", newCronJob("@every 7m", now, last("11:40")), nil, "run 11:54, wait 30.1s"},
		"Zone":       {"noon in Paris is at 11 UTC", newCronJob("0 12 * * *", now, last("10:00"), inZone("Europe/Paris")), nil, "run 11:00, wait 22h59m30.1s"},
		"BadZone":    {"the zone is unknown", newCronJob("0 * * * *", now, inZone("Nowhere")), nil, "UnknownTimeZone"},
		"BadCron":    {"the schedule is not one", newCronJob("whenever", now), nil, "UnparseableSchedule"},
		"TZ":         {"a zone in the schedule is worth a warning", newCronJob("TZ=Europe/Paris 0 13 * * *", now, last("11:00")), nil, "run 12:00, wait 23h59m30.1s, UnsupportedSchedule"},
		"Never":      {"there is no 31 February", newCronJob("0 0 31 2 *", now), nil, ""},
		"Forbid":     {"the former run is not over", newCronJob("0 * * * *", now, last("11:00"), policy(batchv1.ForbidConcurrent), active(job("11:00"))), []*batchv1.Job{job("11:00")}, "wait 59m30.1s, JobAlreadyActive"},
		"Forgotten":  {"nor is one that the status lacks", newCronJob("0 * * * *", now, policy(batchv1.ForbidConcurrent), last("10:00")), []*batchv1.Job{job("11:00")}, "wait 59m30.1s, JobAlreadyActive"},
		"Replace":    {"the former run is stopped", newCronJob("0 * * * *", now, last("11:00"), policy(batchv1.ReplaceConcurrent), active(job("11:00"))), []*batchv1.Job{job("11:00")}, "run 12:00, stop 11:00, wait 59m30.1s"},
		"Over":       {"it has ended", newCronJob("0 * * * *", now, last("11:00"), policy(batchv1.ForbidConcurrent), active(job("11:00"))), []*batchv1.Job{ended(job("11:00"), batchv1.JobFailed)}, "run 12:00, wait 59m30.1s, SawCompletedJob"},
		"Missing":    {"it is gone", newCronJob("0 * * * *", now, last("12:00"), active(job("12:00"))), nil, "wait 59m30.1s, MissingJob"},
		"Unexpected": {"a Job of another origin is left alone", newCronJob("0 * * * *", now, last("12:00")), []*batchv1.Job{manual}, "wait 59m30.1s, UnexpectedJob"},
		"History": {"finished Jobs beyond the limits are deleted", newCronJob("0 * * * *", now, last("12:00"), func(cj *batchv1.CronJob) {
			cj.Spec.SuccessfulJobsHistoryLimit, cj.Spec.FailedJobsHistoryLimit = new(int32(1)), new(int32(0))
		}),
			[]*batchv1.Job{ended(job("10:00"), batchv1.JobComplete), ended(job("11:00"), batchv1.JobComplete), ended(job("09:00"), batchv1.JobFailed)}, "wait 59m30.1s, prune 10:00 09:00"},
	} {
		if got := decide(row.cj, row.jobs, now).String(); got != row.want {
			t.Errorf("%s: %s:\n got %s\nwant %s", name, row.reason, got, row.want)
		}
	}
}

func (p plan) String() string {
	var out []string
	if !p.run.IsZero() {
		out = append(out, "run "+p.run.UTC().Format("15:04"))
	}
	list := func(name string, jobs []*batchv1.Job) {
		if len(jobs) == 0 {
			return
		}
		for _, j := range jobs {
			name += " " + j.Annotations[batchv1.CronJobScheduledTimestampAnnotation][11:16]
		}
		out = append(out, name)
	}
	list("stop", p.stop)
	if p.wait > 0 {
		out = append(out, "wait "+p.wait.String())
	}
	for _, e := range p.events {
		out = append(out, e.reason)
	}
	list("prune", p.prune)
	return strings.Join(out, ", ")
}

// TestMostRecentIsTheLastOfAll compares the search with one that looks at every time.
func TestMostRecentIsTheLastOfAll(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 10, 0, time.UTC)
	for _, text := range []string{"* * * * *", "0 0 1 * *", "*/7 3 * * 1", "59 23 31 1 *", "@every 13m", "@daily"} {
		s, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []time.Time{now.Add(-time.Second), now.Add(-time.Hour), now.AddDate(0, -2, 0)} {
			var want time.Time
			for at := s.Next(from); !at.After(now); at = s.Next(at) {
				want = at
			}
			if got := mostRecent(s, from, now); !got.Equal(want) {
				t.Errorf("%s from %s: %s, want %s", text, from, got, want)
			}
		}
	}
}
