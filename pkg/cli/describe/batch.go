package describe

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// optional returns the text of an optional value, "<unset>" if it is nil.
func optional[T any](v *T, unit string) string {
	if v == nil {
		return "<unset>"
	}
	return fmt.Sprint(*v) + unit
}

func (p *page) job(j *batchv1.Job) {
	spec, s := &j.Spec, &j.Status
	p.head(&j.ObjectMeta)
	p.field(0, "Selector", metav1.FormatLabelSelector(spec.Selector))
	p.meta(&j.ObjectMeta)
	p.field(0, "Controlled By", controlledBy(&j.ObjectMeta))
	p.field(0, "Parallelism", optional(spec.Parallelism, ""))
	p.field(0, "Completions", optional(spec.Completions, ""))
	p.field(0, "Completion Mode", optional(spec.CompletionMode, ""))
	p.field(0, "Suspend", optional(spec.Suspend, ""))
	p.field(0, "Backoff Limit", optional(spec.BackoffLimit, ""))
	if spec.TTLSecondsAfterFinished != nil {
		p.field(0, "TTL Seconds After Finished", optional(spec.TTLSecondsAfterFinished, ""))
	}
	if s.StartTime != nil {
		p.field(0, "Start Time", when(*s.StartTime))
	}
	if s.CompletionTime != nil {
		p.field(0, "Completed At", when(*s.CompletionTime))
		if s.StartTime != nil {
			p.field(0, "Duration", duration.HumanDuration(s.CompletionTime.Sub(s.StartTime.Time)))
		}
	}
	if spec.ActiveDeadlineSeconds != nil {
		p.field(0, "Active Deadline Seconds", optional(spec.ActiveDeadlineSeconds, "s"))
	}
	active := fmt.Sprintf("%d Active", s.Active)
	if s.Ready != nil {
		active += fmt.Sprintf(" (%d Ready)", *s.Ready)
	}
	p.line(0, "Pods Statuses:\t%s / %d Succeeded / %d Failed", active, s.Succeeded, s.Failed)
	if spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion {
		p.field(0, "Completed Indexes", orNone(s.CompletedIndexes))
	}
	if s.FailedIndexes != nil {
		p.field(0, "Failed Indexes", orNone(*s.FailedIndexes))
	}
	p.template(&spec.Template)
	p.jobConditions(s.Conditions)
}

func (p *page) jobConditions(list []batchv1.JobCondition) {
	if len(list) == 0 {
		return
	}
	p.line(0, "Conditions:")
	p.line(1, "Type\tStatus\tReason\tMessage")
	p.line(1, "----\t------\t------\t-------")
	for _, c := range list {
		p.line(1, "%s\t%s\t%s\t%s", c.Type, c.Status, c.Reason, c.Message)
	}
}

func (p *page) cronJob(c *batchv1.CronJob) {
	spec, job := &c.Spec, &c.Spec.JobTemplate.Spec
	p.head(&c.ObjectMeta)
	p.meta(&c.ObjectMeta)
	p.field(0, "Schedule", spec.Schedule)
	if spec.TimeZone != nil {
		p.field(0, "Time Zone", *spec.TimeZone)
	}
	p.field(0, "Concurrency Policy", string(spec.ConcurrencyPolicy))
	p.field(0, "Suspend", title(spec.Suspend != nil && *spec.Suspend))
	p.field(0, "Successful Job History Limit", optional(spec.SuccessfulJobsHistoryLimit, ""))
	p.field(0, "Failed Job History Limit", optional(spec.FailedJobsHistoryLimit, ""))
	p.field(0, "Starting Deadline Seconds", optional(spec.StartingDeadlineSeconds, "s"))
	selector := "<unset>"
	if job.Selector != nil {
		selector = metav1.FormatLabelSelector(job.Selector)
	}
	p.field(0, "Selector", selector)
	p.field(0, "Parallelism", optional(job.Parallelism, ""))
	p.field(0, "Completions", optional(job.Completions, ""))
	if job.ActiveDeadlineSeconds != nil {
		p.field(0, "Active Deadline Seconds", optional(job.ActiveDeadlineSeconds, "s"))
	}
	p.template(&job.Template)
	last := "<unset>"
	if t := c.Status.LastScheduleTime; t != nil {
		last = when(*t)
	}
	p.field(0, "Last Schedule Time", last)
	p.field(0, "Active Jobs", orNone(strings.Join(texts(c.Status.Active, func(r *corev1.ObjectReference) string { return r.Name }), ", ")))
}
