package registry

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/conditions"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func jobs(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*batchv1.Job, batchv1.JobSpec, batchv1.JobStatus]{
		parts: func(j *batchv1.Job) (*batchv1.JobSpec, *batchv1.JobStatus) { return &j.Spec, &j.Status },
	}
	return Of[*batchv1.Job]{
		Default: defaultJob,
		Prepare: func(ctx context.Context, b Backend, new, old *batchv1.Job) error {
			if old == nil && !isSet(new.Spec.ManualSelector) {
				generateSelector(new)
			}
			return life.prepare(ctx, b, new, old)
		},
		Validate: validatePrivileged(cfg, validateJob, func(j *batchv1.Job) (*corev1.PodSpec, *field.Path) { return templateSpec(&j.Spec.Template) }),
		Warnings: jobWarnings,
		Columns:  jobColumns(),
		Row:      jobRow,
		Fields: func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		},
		AllowUnconditionalUpdate: true,
		OrphanByDefault:          true,
		OrphanWarning:            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		Subresources:             []*Subresource{life.status(k, nil, validateJobStatusUpdate)},
	}.Kind(k)
}

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = new(int32(1))
	}
	newIfNil(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		newIfNil(&spec.BackoffLimit, math.MaxInt32)
	}
	newIfNil(&spec.BackoffLimit, 6)
	newIfNil(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	newIfNil(&spec.Suspend, false)
	newIfNil(&spec.ManualSelector, false)
	if spec.PodFailurePolicy != nil {
		newIfNil(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	newIfNil(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if len(j.Labels) == 0 && len(spec.Template.Labels) > 0 {
		j.Labels = maps.Clone(spec.Template.Labels)
	}
	defaultJobTemplate(spec)
}

// defaultJobTemplate sets the defaults that Jobs and the templates of CronJobs have
// in common.
func defaultJobTemplate(spec *batchv1.JobSpec) {
	if p := spec.PodFailurePolicy; p != nil {
		for i := range p.Rules {
			for j := range p.Rules[i].OnPodConditions {
				orDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	podspec.Default(&spec.Template.Spec)
}

// legacyControllerUID and legacyJobName are labels of old clients, without a domain.
const (
	legacyControllerUID = "controller-uid"
	legacyJobName       = "job-name"
)

// generatedLabels returns the labels of the pods of a job whose selector the server
// generates.
func generatedLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		batchv1.JobNameLabel: j.Name, legacyJobName: j.Name,
		batchv1.ControllerUidLabel: string(j.UID), legacyControllerUID: string(j.UID),
	}
}

// generateSelector adds the generated labels to the template, and to the job if it
// has the labels of its template, and selects the pods by the job's UID. It keeps
// other values that the user has set; validation rejects them.
func generateSelector(j *batchv1.Job) {
	same := maps.Equal(j.Labels, j.Spec.Template.Labels)
	for name, value := range generatedLabels(j) {
		if _, set := j.Spec.Template.Labels[name]; !set {
			metav1.SetMetaDataLabel(&j.Spec.Template.ObjectMeta, name, value)
		}
	}
	if same {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
	newIfNil(&j.Spec.Selector, metav1.LabelSelector{})
	if _, set := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !set {
		metav1.AddLabelToSelector(j.Spec.Selector, batchv1.ControllerUidLabel, string(j.UID))
	}
}

// isSet reports whether flag is true; nil is false.
func isSet(flag *bool) bool { return flag != nil && *flag }

func jobWarnings(new, old *batchv1.Job) []string {
	var out []string
	switch {
	case old == nil:
		if problems := validation.IsDNS1123Label(new.Name); len(problems) > 0 {
			out = append(out, nameWarning(problems))
		}
	case new.Generation == old.Generation:
		return nil
	}
	return append(out, jobSpecWarnings(&new.Spec, field.NewPath("spec"))...)
}

// jobSpecWarnings returns the warnings for the spec of a Job or of the template of a
// CronJob.
func jobSpecWarnings(spec *batchv1.JobSpec, path *field.Path) []string {
	var out []string
	if indexed(spec) && spec.Completions != nil && *spec.Completions > manyCompletions && spec.Parallelism != nil && *spec.Parallelism > manyCompletionsParallelism {
		out = append(out, path.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(out, podspec.TemplateWarnings(&spec.Template, path.Child("template"))...)
}

func jobColumns() []metav1.TableColumnDefinition {
	spec, status := batchv1.JobSpec{}.SwaggerDoc(), batchv1.JobStatus{}.SwaggerDoc()
	return append(columns(
		column("Status", "Status of the job."),
		column("Completions", status["succeeded"]),
		column("Duration", "Time required to complete the job."),
		ageColumn(),
	), templateColumns(spec["selector"])...)
}

func jobRow(j *batchv1.Job, now time.Time) []any {
	return append([]any{j.Name, jobPhase(j), jobCompletions(j), jobDuration(&j.Status, now), age(j.CreationTimestamp, now)},
		templateCells(&j.Spec.Template, j.Spec.Selector)...)
}

// jobPhase returns the state of the job in a word.
func jobPhase(j *batchv1.Job) string {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if conditions.IsTrue(j.Status.Conditions, t) {
			return string(t)
		}
	}
	if j.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if conditions.IsTrue(j.Status.Conditions, t) {
			return string(t)
		}
	}
	return "Running"
}

func jobCompletions(j *batchv1.Job) string {
	switch spec := &j.Spec; {
	case spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *spec.Completions)
	case spec.Parallelism != nil && *spec.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *spec.Parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

// jobDuration returns how long the job has been running, or ran; "" if it has not
// started.
func jobDuration(s *batchv1.JobStatus, now time.Time) string {
	switch {
	case s.StartTime == nil:
		return ""
	case s.CompletionTime == nil:
		return duration.HumanDuration(now.Sub(s.StartTime.Time))
	}
	return duration.HumanDuration(s.CompletionTime.Sub(s.StartTime.Time))
}
