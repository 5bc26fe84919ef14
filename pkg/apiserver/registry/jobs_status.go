package registry

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/conditions"
)

// jobStatus is a status under validation with the state that its conditions describe.
// Most rules hold only for what a write changes, so that a write can repair a status
// step by step, and a change of the spec does not make the status invalid.
type jobStatus struct {
	*batchv1.JobStatus
	spec                                       *batchv1.JobSpec
	complete, failed, failing, succeeding, end bool
}

func statusOf(j *batchv1.Job) jobStatus {
	is := func(t batchv1.JobConditionType) bool { return conditions.IsTrue(j.Status.Conditions, t) }
	s := jobStatus{
		JobStatus: &j.Status, spec: &j.Spec,
		complete: is(batchv1.JobComplete), failed: is(batchv1.JobFailed),
		failing: is(batchv1.JobFailureTarget), succeeding: is(batchv1.JobSuccessCriteriaMet),
	}
	s.end = s.complete || s.failed
	return s
}

// problem is an error that is reported if it holds.
type problem struct {
	holds bool
	err   *field.Error
}

func report(problems []problem) field.ErrorList {
	var errs field.ErrorList
	for _, p := range problems {
		if p.holds {
			errs = append(errs, p.err)
		}
	}
	return errs
}

func validateJobStatusUpdate(newJob, oldJob *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	new, old := statusOf(newJob), statusOf(oldJob)
	errs := validateJobCounts(new, path)
	errs = append(errs, validateJobConditions(new, old, path.Child("conditions"))...)
	errs = append(errs, validateJobTimes(new, old, path)...)
	errs = append(errs, validateJobProgress(new, old, path)...)
	return append(errs, validateJobIndexes(new, old, path)...)
}

func validateJobCounts(s jobStatus, path *field.Path) field.ErrorList {
	errs := validateNonnegative(path, count{"active", s.Active}, count{"succeeded", s.Succeeded}, count{"failed", s.Failed})
	if s.Ready != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*s.Ready), path.Child("ready"))...)
	}
	if s.Terminating != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*s.Terminating), path.Child("terminating"))...)
	}
	if s.UncountedTerminatedPods == nil {
		return errs
	}
	seen := sets.New[types.UID]()
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", s.UncountedTerminatedPods.Succeeded}, {"failed", s.UncountedTerminatedPods.Failed}} {
		for i, uid := range list.uids {
			at := path.Child("uncountedTerminatedPods", list.name).Index(i)
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at, uid, "must not be empty"))
			case seen.Has(uid):
				errs = append(errs, field.Duplicate(at, uid))
			}
			seen.Insert(uid)
		}
	}
	return errs
}

// validateJobConditions checks that the conditions do not contradict each other, and
// that a final one stays true.
func validateJobConditions(new, old jobStatus, path *field.Path) field.ErrorList {
	deny := func(text string) *field.Error { return field.Invalid(path, field.OmitValueType{}, text) }
	const disable = "cannot disable the terminal %s=True condition"
	completes, fails := new.complete != old.complete, new.failed != old.failed
	return report([]problem{
		{(completes || fails) && new.complete && new.failed, deny("cannot set Complete=True and Failed=true conditions")},
		{(completes || new.failing != old.failing) && new.complete && new.failing, deny("cannot set Complete=True and FailureTarget=true conditions")},
		{fails && new.failed && !new.failing, deny("cannot set Failed=True condition without the FailureTarget=true condition")},
		{completes && new.complete && !new.succeeding, deny("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")},
		{new.succeeding && new.failed, deny("cannot set SuccessCriteriaMet=True and Failed=true conditions")},
		{new.succeeding && new.failing, deny("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")},
		{new.spec.SuccessPolicy != nil && new.complete && !new.succeeding, deny("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")},
		{old.failed && !new.failed, deny(fmt.Sprintf(disable, batchv1.JobFailed))},
		{old.complete && !new.complete, deny(fmt.Sprintf(disable, batchv1.JobComplete))},
		{old.failing && !new.failing, deny(fmt.Sprintf(disable, batchv1.JobFailureTarget))},
		{old.succeeding && !new.succeeding, deny("cannot disable the SuccessCriteriaMet=True condition")},
		{old.complete && !old.succeeding && new.succeeding, deny("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")},
	})
}

func validateJobTimes(new, old jobStatus, path *field.Path) field.ErrorList {
	completion, start := path.Child("completionTime"), path.Child("startTime")
	starts := !new.StartTime.Equal(old.StartTime)
	moved := !new.CompletionTime.Equal(old.CompletionTime)
	completes := new.complete != old.complete || moved
	return report([]problem{
		{completes && new.CompletionTime != nil && !new.complete, field.Invalid(completion, new.CompletionTime, "cannot set completionTime when there is no Complete=True condition")},
		{completes && new.CompletionTime == nil && new.complete, field.Required(completion, "completionTime is required for Complete jobs")},
		{(starts || moved) && new.StartTime != nil && new.CompletionTime != nil && new.CompletionTime.Before(new.StartTime),
			field.Invalid(completion, new.CompletionTime, "completionTime cannot be set before startTime")},
		{moved && new.CompletionTime != nil && old.CompletionTime != nil, field.Invalid(completion, new.CompletionTime, "completionTime cannot be mutated")},
		{(new.end != old.end || starts) && new.end && new.StartTime == nil, field.Required(start, "startTime is required for finished job")},
		{starts && old.StartTime != nil && !isSet(new.spec.Suspend), field.Required(start, "startTime cannot be removed for unsuspended job")},
	})
}

// validateJobProgress checks that counters do not decrease and that an ended job has
// no pods.
func validateJobProgress(new, old jobStatus, path *field.Path) field.ErrorList {
	ends := new.end != old.end
	uncounted := new.UncountedTerminatedPods
	left := uncounted != nil && len(uncounted.Failed)+len(uncounted.Succeeded) > 0
	recounted := !apiequality.Semantic.DeepEqual(uncounted, old.UncountedTerminatedPods)
	elastic := indexed(new.spec) && apiequality.Semantic.DeepEqual(new.spec.Completions, new.spec.Parallelism) // it can be scaled down
	return report([]problem{
		{new.Failed < old.Failed, field.Invalid(path.Child("failed"), new.Failed, "cannot decrease the failed counter")},
		{new.Succeeded < old.Succeeded && !elastic, field.Invalid(path.Child("succeeded"), new.Succeeded, "cannot decrease the succeeded counter")},
		{(ends || new.Active != old.Active) && new.end && new.Active > 0, field.Invalid(path.Child("active"), new.Active, "active>0 is invalid for finished job")},
		{(ends || changed(new.Terminating, old.Terminating)) && new.end && new.Terminating != nil && *new.Terminating > 0,
			field.Invalid(path.Child("terminating"), new.Terminating, "terminating>0 is invalid for finished job")},
		{(new.Active != old.Active || changed(new.Ready, old.Ready)) && new.Ready != nil && *new.Ready > new.Active,
			field.Invalid(path.Child("ready"), new.Ready, "cannot set more ready pods than active")},
		{(ends || recounted) && new.end && left, field.Invalid(path.Child("uncountedTerminatedPods"), uncounted, "uncountedTerminatedPods needs to be empty for finished job")},
	})
}

func validateJobIndexes(new, old jobStatus, path *field.Path) field.ErrorList {
	completed, failed := path.Child("completedIndexes"), path.Child("failedIndexes")
	var errs field.ErrorList
	completes, fails := new.CompletedIndexes != old.CompletedIndexes, changed(new.FailedIndexes, old.FailedIndexes)
	if completes && new.CompletedIndexes != "" && !indexed(new.spec) {
		errs = append(errs, field.Invalid(completed, new.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode"))
	}
	if fails && new.FailedIndexes != nil && new.spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(failed, *new.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	}
	n := new.spec.Completions
	if n == nil {
		return errs
	}
	if completes {
		if _, err := countIndexes(new.CompletedIndexes, *n); err != nil {
			errs = append(errs, field.Invalid(completed, new.CompletedIndexes, "error parsing completedIndexes: "+err.Error()))
		}
	}
	if new.FailedIndexes == nil {
		return errs
	}
	if fails && new.spec.BackoffLimitPerIndex != nil {
		if _, err := countIndexes(*new.FailedIndexes, *n); err != nil {
			errs = append(errs, field.Invalid(failed, *new.FailedIndexes, "error parsing failedIndexes: "+err.Error()))
		}
	}
	if i, found := overlap(new.CompletedIndexes, *new.FailedIndexes, *n); found && (completes || fails) {
		errs = append(errs, field.Invalid(failed, *new.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", i)))
	}
	return errs
}

// changed reports whether two optional values differ.
func changed[T comparable](new, old *T) bool {
	return (new == nil) != (old == nil) || new != nil && *new != *old
}
