package cronjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
)

// slack is how long after the scheduled time a CronJob is reconciled.
const slack = 100 * time.Millisecond

// plan is the actions of one reconcile.
type plan struct {
	status batchv1.CronJobStatus
	events []event
	run    time.Time      // create the Job of this time; zero: none
	stop   []*batchv1.Job // delete these running Jobs first
	prune  []*batchv1.Job // delete these finished Jobs
	wait   time.Duration  // until the CronJob is to be reconciled again; 0: when something changes
}

type event struct{ kind, reason, message string }

func warning(reason, format string, args ...any) *event {
	return &event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

func (p *plan) note(reason, format string, args ...any) {
	p.events = append(p.events, event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

func (p *plan) warn(e *event) {
	if e != nil {
		p.events = append(p.events, *e)
	}
}

// decide returns what to do for a CronJob with these Jobs.
func decide(cj *batchv1.CronJob, jobs []*batchv1.Job, now time.Time) plan {
	p := plan{status: *cj.Status.DeepCopy()}
	for _, j := range jobs {
		p.observe(cj, j)
	}
	p.dropMissing(jobs)
	p.prune = slices.Concat(
		oldest(jobs, batchv1.JobComplete, cj.Spec.SuccessfulJobsHistoryLimit),
		oldest(jobs, batchv1.JobFailed, cj.Spec.FailedJobsHistoryLimit))
	if cj.DeletionTimestamp == nil && (cj.Spec.Suspend == nil || !*cj.Spec.Suspend) {
		p.schedule(cj, jobs, now)
	}
	return p
}

// observe updates the status by a Job of the CronJob.
func (p *plan) observe(cj *batchv1.CronJob, j *batchv1.Job) {
	s := &p.status
	end := finished(j)
	at := slices.IndexFunc(s.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID })
	scheduled := scheduledTime(cj, j)
	switch {
	case at >= 0 && end != nil:
		s.Active = slices.Delete(s.Active, at, at+1)
		p.note("SawCompletedJob", "Saw completed job: %s, condition: %s", j.Name, end.Type)
	case at < 0 && end == nil && j.DeletionTimestamp == nil && scheduled.IsZero():
		p.warn(warning("UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", j.Name))
	case at < 0 && end == nil && j.DeletionTimestamp == nil:
		s.Active = append(s.Active, reference(j))
	}
	if last := s.LastScheduleTime; !scheduled.IsZero() && (last == nil || scheduled.After(last.Time)) {
		s.LastScheduleTime = &metav1.Time{Time: scheduled}
	}
	if end != nil && end.Type == batchv1.JobComplete && j.Status.CompletionTime != nil &&
		(s.LastSuccessfulTime == nil || s.LastSuccessfulTime.Before(j.Status.CompletionTime)) {
		s.LastSuccessfulTime = j.Status.CompletionTime
	}
}

// dropMissing removes the references to Jobs that no longer exist.
func (p *plan) dropMissing(jobs []*batchv1.Job) {
	exists := map[types.UID]bool{}
	for _, j := range jobs {
		exists[j.UID] = true
	}
	p.status.Active = slices.DeleteFunc(p.status.Active, func(r corev1.ObjectReference) bool {
		if !exists[r.UID] {
			p.note("MissingJob", "Active job went missing: %v", r.Name)
		}
		return !exists[r.UID]
	})
}

// schedule decides whether a Job is due, and when the next one will be.
func (p *plan) schedule(cj *batchv1.CronJob, jobs []*batchv1.Job, now time.Time) {
	s, e := schedule(cj)
	p.warn(e)
	if s == nil {
		return
	}
	from := cj.CreationTimestamp.Time
	if last := p.status.LastScheduleTime; last != nil {
		from = last.Time
	}
	due := mostRecent(s, from, now)
	anchor := due
	if due.IsZero() {
		anchor = from
	}
	if next := s.Next(anchor); !next.IsZero() {
		p.wait = next.Add(slack).Sub(now)
	}
	if due.IsZero() {
		return
	}
	if limit := cj.Spec.StartingDeadlineSeconds; limit != nil {
		deadline := time.Duration(*limit) * time.Second
		if due.Add(deadline).Before(now) {
			p.warn(warning("MissSchedule", "Missed scheduled time to start a job: %s", due.UTC().Format(time.RFC1123Z)))
			return
		}
		if start := now.Add(-deadline); start.After(from) {
			from = start
		}
	}
	p.start(cj, jobs, due)
	if !p.run.IsZero() && manyMissed(s, from, now) {
		p.warn(warning("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"))
	}
}

// start decides what the concurrency policy says about a Job that is due.
func (p *plan) start(cj *batchv1.CronJob, jobs []*batchv1.Job, due time.Time) {
	switch {
	case cj.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(p.status.Active) > 0:
		p.note("JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
		return
	case cj.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent:
		for _, j := range jobs {
			if slices.ContainsFunc(p.status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID }) {
				p.stop = append(p.stop, j)
			}
		}
	}
	p.run = due
}

// oldest returns the Jobs with the final condition t that exceed a limit; nil: there is none.
func oldest(jobs []*batchv1.Job, t batchv1.JobConditionType, limit *int32) []*batchv1.Job {
	if limit == nil {
		return nil
	}
	var list []*batchv1.Job
	for _, j := range jobs {
		if end := finished(j); end != nil && end.Type == t && j.DeletionTimestamp == nil {
			list = append(list, j)
		}
	}
	if len(list) <= int(*limit) {
		return nil
	}
	start := func(j *batchv1.Job) time.Time {
		if j.Status.StartTime == nil {
			return j.CreationTimestamp.Time
		}
		return j.Status.StartTime.Time
	}
	slices.SortFunc(list, func(a, b *batchv1.Job) int { return cmp.Or(start(a).Compare(start(b)), cmp.Compare(a.Name, b.Name)) })
	return list[:len(list)-int(*limit)]
}

// finished returns the final condition of a Job, nil if it has none.
func finished(j *batchv1.Job) *batchv1.JobCondition {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if conditions.IsTrue(j.Status.Conditions, t) {
			return conditions.Find(j.Status.Conditions, t)
		}
	}
	return nil
}
