package why

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// failedJob explains Jobs that have failed, are suspended, or cannot create
// pods.
func failedJob(f *Facts, j *batchv1.Job) (out []Finding) {
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		out = append(out, found(root, "the Job is suspended").by("spec.suspend: true").fix(`podium patch job %s%s --type=merge -p '{"spec":{"suspend":false}}'`, j.Name, in(j.Namespace)))
	}
	done := false
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		done = done || c.Type == batchv1.JobComplete
		if c.Type == batchv1.JobFailed {
			done = true
			out = append(out, failure(j, c).by(fmt.Sprintf("condition Failed=True (%s): %s", c.Reason, c.Message)))
		}
	}
	if !done {
		out = append(out, creates(f, "Job", j.Name, j.Namespace, j.Status.Active == 0)...)
	}
	if by := j.Spec.ManagedBy; by != nil && *by != batchv1.JobControllerName && len(j.Status.Conditions) == 0 {
		out = append(out, found(likely, "the Job waits for the controller %q", *by).by("spec.managedBy").fix("run that controller, or create the Job without managedBy"))
	}
	return out
}

// failure says which policy has failed a Job.
func failure(j *batchv1.Job, c batchv1.JobCondition) Finding {
	see := fmt.Sprintf("podium logs job/%s%s", j.Name, in(j.Namespace))
	switch c.Reason {
	case batchv1.JobReasonBackoffLimitExceeded:
		limit := int32(6)
		if j.Spec.BackoffLimit != nil {
			limit = *j.Spec.BackoffLimit
		}
		return found(likely, "the Job has failed: %d of its pods have failed, more than backoffLimit %d allows", j.Status.Failed, limit).fix("%s; raise spec.backoffLimit in a new Job", see)
	case batchv1.JobReasonDeadlineExceeded:
		return found(root, "the Job has failed: it ran longer than its activeDeadlineSeconds of %d", deref(j.Spec.ActiveDeadlineSeconds)).fix("create it again with a longer activeDeadlineSeconds")
	case batchv1.JobReasonPodFailurePolicy:
		return found(root, "the Job has failed by its podFailurePolicy: %s", oneLine(c.Message)).fix("%s; or change spec.podFailurePolicy in a new Job", see)
	case batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes:
		failed := ""
		if j.Status.FailedIndexes != nil {
			failed = " (" + *j.Status.FailedIndexes + ")"
		}
		return found(likely, "the Job has failed: indexes have failed%s", failed).fix("%s; raise backoffLimitPerIndex or maxFailedIndexes in a new Job", see)
	}
	return found(likely, "the Job has failed: %s", oneLine(c.Message)).fix("%s", see)
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// cronJob explains CronJobs that start no Job.
func cronJob(f *Facts, c *batchv1.CronJob) (out []Finding) {
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		out = append(out, found(root, "the CronJob is suspended").by("spec.suspend: true").fix(`podium patch cronjob %s%s --type=merge -p '{"spec":{"suspend":false}}'`, c.Name, in(c.Namespace)))
	}
	if e := f.event("CronJob", c.Name, "FailedCreate"); e != nil {
		out = append(out, refused(e.Message, "CronJob", c.Namespace).by(f.said(e)))
	}
	if e := f.event("CronJob", c.Name, "TooManyMissedTimes", "MissSchedule"); e != nil {
		out = append(out, found(likely, "the CronJob has missed starts").by(f.said(e)).fix("set or raise spec.startingDeadlineSeconds: podium edit cronjob %s%s", c.Name, in(c.Namespace)))
	}
	if e := f.event("CronJob", c.Name, "UnparseableSchedule", "InvalidSchedule", "UnknownTimeZone"); e != nil {
		out = append(out, found(root, "the CronJob's schedule %q cannot be read", c.Spec.Schedule).by(f.said(e)).fix("correct spec.schedule: podium edit cronjob %s%s", c.Name, in(c.Namespace)))
	}
	if e := f.event("CronJob", c.Name, "JobAlreadyActive"); e != nil && c.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(c.Status.Active) > 0 {
		out = append(out, found(likely-5, "the Job %s still runs, and concurrencyPolicy Forbid lets no other start", c.Status.Active[0].Name).by(f.said(e), "status.active").
			fix("podium why job %s%s", c.Status.Active[0].Name, in(c.Namespace)))
	}
	if len(out) == 0 && c.Status.LastScheduleTime == nil && f.Now.Sub(c.CreationTimestamp.Time) > 2*time.Minute {
		if why := stale(f, "kube-controller-manager"); why != "" {
			out = append(out, found(root, "the controllers are not running").by(why).fix("start kube-controller-manager on a control plane: systemctl status kube-controller-manager"))
		} else {
			out = append(out, found(effect, "no start of the schedule %q has come since %s", c.Spec.Schedule, f.age(c.CreationTimestamp.Time)).by("status.lastScheduleTime is empty").
				fix("podium create job TEST --from=cronjob/%s%s", c.Name, in(c.Namespace)))
		}
	}
	return out
}
