package registry

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func cronJobs(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*batchv1.CronJob, batchv1.CronJobSpec, batchv1.CronJobStatus]{
		parts: func(c *batchv1.CronJob) (*batchv1.CronJobSpec, *batchv1.CronJobStatus) { return &c.Spec, &c.Status },
	}
	return Of[*batchv1.CronJob]{
		Default: defaultCronJob,
		Prepare: life.prepare,
		Validate: validatePrivileged(cfg, validateCronJob, func(c *batchv1.CronJob) (*corev1.PodSpec, *field.Path) {
			return &c.Spec.JobTemplate.Spec.Template.Spec, field.NewPath("spec", "jobTemplate", "spec", "template", "spec")
		}),
		Warnings:                 cronJobWarnings,
		Columns:                  cronJobColumns(),
		Row:                      cronJobRow,
		AllowUnconditionalUpdate: true,
		Subresources:             []*Subresource{life.status(k, nil, nil)},
	}.Kind(k)
}

func defaultCronJob(c *batchv1.CronJob) {
	orDefault(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	newIfNil(&c.Spec.Suspend, false)
	newIfNil(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	newIfNil(&c.Spec.FailedJobsHistoryLimit, 1)
	defaultJobTemplate(&c.Spec.JobTemplate.Spec)
}

// maxCronJobName is the length of a Job's name without the controller's suffix.
const maxCronJobName = 52

func validateCronJob(new, old *batchv1.CronJob) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	errs := validateSchedule(spec.Schedule, path.Child("schedule"))
	var before *batchv1.JobSpec
	if old != nil {
		before = &old.Spec.JobTemplate.Spec
	} else if len(new.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), new.Name, "must be no more than 52 characters"))
	}
	if spec.StartingDeadlineSeconds != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*spec.StartingDeadlineSeconds, path.Child("startingDeadlineSeconds"))...)
	}
	if old == nil || changed(spec.TimeZone, old.Spec.TimeZone) {
		errs = append(errs, validateTimeZone(spec.TimeZone, path.Child("timeZone"))...)
	}
	errs = append(errs, fieldcheck.OneOf(spec.ConcurrencyPolicy, path.Child("concurrencyPolicy"),
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	job := path.Child("jobTemplate", "spec")
	errs = append(errs, validateJobSpec(&spec.JobTemplate.Spec, before, job)...)
	if s := spec.JobTemplate.Spec.Selector; s != nil {
		errs = append(errs, field.Invalid(job.Child("selector"), s, "`selector` will be auto-generated"))
	}
	if manual := spec.JobTemplate.Spec.ManualSelector; isSet(manual) {
		errs = append(errs, field.NotSupported(job.Child("manualSelector"), manual, []string{"nil", "false"}))
	}
	if n := spec.SuccessfulJobsHistoryLimit; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), path.Child("successfulJobsHistoryLimit"))...)
	}
	if n := spec.FailedJobsHistoryLimit; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), path.Child("failedJobsHistoryLimit"))...)
	}
	return errs
}

func validateSchedule(schedule string, path *field.Path) field.ErrorList {
	switch {
	case schedule == "":
		return field.ErrorList{field.Required(path, "")}
	case strings.Contains(schedule, "TZ"): // the parser accepts it, and panics on some values
		return field.ErrorList{field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")}
	}
	if _, err := cron.ParseStandard(schedule); err != nil {
		return field.ErrorList{field.Invalid(path, schedule, err.Error())}
	}
	return nil
}

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	if zone == nil {
		return nil
	}
	if *zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(*zone, "/") {
		if !validZonePart(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+*zone)}
		}
	}
	if strings.EqualFold(*zone, "Local") {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return field.ErrorList{field.Invalid(path, zone, err.Error())}
	}
	return nil
}

// validZonePart reports whether s may be a component of a time zone's file name.
//
// https://data.iana.org/time-zones/theory.html#naming
func validZonePart(s string) bool {
	const maxPart = 14
	if s == "" || len(s) > maxPart || s == "." || s == ".." || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+") == ""
}

func cronJobWarnings(new, old *batchv1.CronJob) []string {
	var out []string
	switch {
	case old == nil:
		if problems := validation.IsDNS1123Label(new.Name); len(problems) > 0 {
			out = append(out, nameWarning(problems))
		}
	case new.Generation == old.Generation:
		return nil
	}
	return append(out, jobSpecWarnings(&new.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))...)
}

func cronJobColumns() []metav1.TableColumnDefinition {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return append(columns(
		column("Schedule", spec["schedule"]),
		column("Timezone", spec["timeZone"]),
		column("Suspend", spec["suspend"]),
		number("Active", status["active"]),
		column("Last Schedule", status["lastScheduleTime"]),
		ageColumn(),
	), templateColumns(batchv1.JobSpec{}.SwaggerDoc()["selector"])...)
}

func cronJobRow(c *batchv1.CronJob, now time.Time) []any {
	zone, suspend, last := "<none>", "<unset>", "<none>"
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	if s := c.Spec.Suspend; s != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*s]
	}
	if t := c.Status.LastScheduleTime; t != nil {
		last = age(*t, now)
	}
	job := &c.Spec.JobTemplate.Spec
	return append([]any{c.Name, c.Spec.Schedule, zone, suspend, int64(len(c.Status.Active)), last, age(c.CreationTimestamp, now)},
		templateCells(&job.Template, job.Selector)...)
}
