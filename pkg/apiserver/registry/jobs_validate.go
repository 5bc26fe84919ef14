package registry

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
)

// Limits of jobs, which bound the length of the lists of indexes in the status.
const (
	maxIndexedParallelism      = 100_000
	maxFailedIndexes           = 100_000
	manyCompletions            = 100_000 // above this, the two following limits hold
	manyCompletionsParallelism = 10_000
	manyCompletionsFailed      = 10_000
	maxManagedBy               = 63
)

func validateJob(new, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	errs := validateGeneratedSelector(new)
	errs = append(errs, validateJobSelector(spec, path)...)
	if indexed(spec) && spec.Completions != nil && *spec.Completions > 0 {
		host := fmt.Sprintf("%s-%d", new.Name, *spec.Completions-1)
		if len(validation.IsDNS1123Label(host)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), new.Name, "will not able to create pod with invalid DNS label: "+host))
		}
	}
	var before *batchv1.JobSpec
	if old != nil {
		before = &old.Spec
		errs = append(errs, validateJobUpdate(spec, old, path)...)
	}
	return append(errs, validateJobSpec(spec, before, path)...)
}

// validateGeneratedSelector checks that the server's labels and selector are in
// place, unless the user manages them.
func validateGeneratedSelector(j *batchv1.Job) field.ErrorList {
	if isSet(j.Spec.ManualSelector) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	want := generatedLabels(j)
	at := field.NewPath("spec", "template", "metadata", "labels")
	for _, name := range []string{legacyControllerUID, legacyJobName, batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		must := fmt.Sprintf("must be '%s'", want[name])
		if have, ok := j.Spec.Template.Labels[name]; !ok {
			errs = append(errs, field.Required(at.Key(name), must))
		} else if have != want[name] {
			errs = append(errs, field.Invalid(at.Key(name), j.Spec.Template.Labels, must))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(labels.Set(want)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

func validateJobSelector(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	at := path.Child("selector")
	var errs field.ErrorList
	if spec.Selector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, at)...)
	}
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !s.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// validateJobSpec validates what Jobs and the templates of CronJobs have in common.
// old is nil on create.
func validateJobSpec(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateJobNumbers(spec, path)
	if m := spec.ManagedBy; m != nil {
		at := path.Child("managedBy")
		errs = append(errs, validation.IsDomainPrefixedPath(at, *m)...)
		if len(*m) > maxManagedBy {
			errs = append(errs, field.TooLong(at, *m, maxManagedBy))
		}
	}
	if spec.Scheduling != nil {
		errs = append(errs, field.Forbidden(path.Child("scheduling"), podspec.Unsupported))
	}
	errs = append(errs, validateCompletionMode(spec, path)...)
	errs = append(errs, validatePodFailurePolicy(spec, path.Child("podFailurePolicy"))...)
	if spec.SuccessPolicy != nil {
		at := path.Child("successPolicy")
		if indexed(spec) {
			errs = append(errs, validateSuccessPolicy(spec, at)...)
		} else {
			errs = append(errs, field.Invalid(at, *spec.SuccessPolicy, "requires indexed completion mode"))
		}
	}
	if p := spec.PodReplacementPolicy; p != nil {
		valid := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
		if spec.PodFailurePolicy != nil {
			valid = valid[:1]
		}
		errs = append(errs, fieldcheck.Supported(*p, path.Child("podReplacementPolicy"), valid...)...)
	}
	template := path.Child("template")
	if old == nil || !apiequality.Semantic.DeepEqual(spec.Template, old.Template) {
		errs = append(errs, podspec.ValidateAnyTemplate(&spec.Template, template)...)
	}
	return append(errs, validateJobRestarts(spec, template.Child("spec", "restartPolicy"))...)
}

func validateJobNumbers(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		value *int32
	}{
		{"parallelism", spec.Parallelism}, {"completions", spec.Completions}, {"backoffLimit", spec.BackoffLimit},
		{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished},
		{"backoffLimitPerIndex", spec.BackoffLimitPerIndex}, {"maxFailedIndexes", spec.MaxFailedIndexes},
	} {
		if n.value != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n.value), path.Child(n.name))...)
		}
	}
	if s := spec.ActiveDeadlineSeconds; s != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*s, path.Child("activeDeadlineSeconds"))...)
	}
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	return errs
}

func validateJobRestarts(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	const onFailure, never = corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	switch p := spec.Template.Spec.RestartPolicy; {
	case p == corev1.RestartPolicyAlways || p == "": // Always is also the default
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", onFailure, never))}
	case p != onFailure && p != never:
		return field.ErrorList{field.NotSupported(path, p, []corev1.RestartPolicy{onFailure, never})}
	case p != never && spec.PodFailurePolicy != nil:
		return field.ErrorList{field.Invalid(path, p, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", never))}
	}
	return nil
}

func indexed(spec *batchv1.JobSpec) bool {
	return spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
}

func validateCompletionMode(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if indexed(spec) {
		return validateIndexed(spec, path)
	}
	var errs field.ErrorList
	if m := spec.CompletionMode; m != nil {
		errs = fieldcheck.Supported(*m, path.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
		if len(errs) > 0 {
			return errs
		}
	}
	const needs = "requires indexed completion mode"
	if n := spec.BackoffLimitPerIndex; n != nil {
		errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *n, needs))
	}
	if n := spec.MaxFailedIndexes; n != nil {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *n, needs))
	}
	return errs
}

// validateIndexed validates the numbers of a job with indexes.
func validateIndexed(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	parallelism, failed := path.Child("parallelism"), path.Child("maxFailedIndexes")
	if n := spec.Parallelism; n != nil && *n > maxIndexedParallelism {
		errs = append(errs, field.Invalid(parallelism, *n, fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexedParallelism, batchv1.IndexedCompletion)))
	}
	if n := spec.MaxFailedIndexes; n != nil && *n > maxFailedIndexes {
		errs = append(errs, field.Invalid(failed, *n, fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes)))
	}
	if spec.Completions == nil {
		return append(errs, field.Required(path.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
	}
	if n := spec.MaxFailedIndexes; n != nil && *n > *spec.Completions {
		errs = append(errs, field.Invalid(failed, *n, "must be less than or equal to completions"))
	}
	if *spec.Completions <= manyCompletions || spec.BackoffLimitPerIndex == nil {
		return errs
	}
	const many = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
	if n := spec.Parallelism; n != nil && *n > manyCompletionsParallelism {
		errs = append(errs, field.Invalid(parallelism, *n, fmt.Sprintf(many, manyCompletionsParallelism, manyCompletions)))
	}
	switch n := spec.MaxFailedIndexes; {
	case n == nil:
		errs = append(errs, field.Required(failed, fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	case *n > manyCompletionsFailed:
		errs = append(errs, field.Invalid(failed, *n, fmt.Sprintf(many, manyCompletionsFailed, manyCompletions)))
	}
	return errs
}

func validateJobUpdate(spec *batchv1.JobSpec, old *batchv1.Job, path *field.Path) field.ErrorList {
	errs := validateCompletionsUpdate(spec, &old.Spec, path)
	for _, f := range []struct {
		name     string
		new, old any
	}{
		{"selector", spec.Selector, old.Spec.Selector},
		{"template", spec.Template, mutableTemplate(spec, old)},
		{"completionMode", spec.CompletionMode, old.Spec.CompletionMode},
		{"podFailurePolicy", spec.PodFailurePolicy, old.Spec.PodFailurePolicy},
		{"backoffLimitPerIndex", spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex},
		{"managedBy", spec.ManagedBy, old.Spec.ManagedBy},
		{"successPolicy", spec.SuccessPolicy, old.Spec.SuccessPolicy},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.new, f.old, path.Child(f.name))...)
	}
	return errs
}

// validateCompletionsUpdate allows only an indexed job to change its completions, and
// only together with its parallelism.
func validateCompletionsUpdate(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	at := path.Child("completions")
	switch {
	case !indexed(spec):
		return apivalidation.ValidateImmutableField(spec.Completions, old.Completions, at)
	case spec.Completions == nil || apiequality.Semantic.DeepEqual(spec.Completions, old.Completions):
		return nil
	case spec.Parallelism == nil || *spec.Completions != *spec.Parallelism:
		return field.ErrorList{field.Invalid(at, *spec.Completions, "can only be modified in tandem with "+path.Child("parallelism").String())}
	}
	return nil
}

// mutableTemplate returns the template of old, with the fields of spec's that may be
// changed while the job is suspended and has no pods: scheduling directives and the
// resources of containers.
func mutableTemplate(spec *batchv1.JobSpec, old *batchv1.Job) corev1.PodTemplateSpec {
	if !isSet(old.Spec.Suspend) || old.Status.Active > 0 {
		return old.Spec.Template
	}
	new, out := &spec.Template, old.Spec.Template.DeepCopy()
	out.Labels, out.Annotations = new.Labels, new.Annotations
	out.Spec.NodeSelector, out.Spec.Tolerations, out.Spec.SchedulingGates = new.Spec.NodeSelector, new.Spec.Tolerations, new.Spec.SchedulingGates
	out.Spec.Affinity = withNodeAffinity(out.Spec.Affinity, new.Spec.Affinity)
	copyResources(out.Spec.Containers, new.Spec.Containers)
	copyResources(out.Spec.InitContainers, new.Spec.InitContainers)
	return *out
}

// withNodeAffinity returns old with the node affinity of new. It is nil if new is nil
// and nothing else is left of old.
func withNodeAffinity(old, new *corev1.Affinity) *corev1.Affinity {
	var out corev1.Affinity
	if old != nil {
		out = *old
	}
	out.NodeAffinity = nil
	if new != nil {
		out.NodeAffinity = new.NodeAffinity
	} else if out == (corev1.Affinity{}) {
		return nil
	}
	return &out
}

func copyResources(to, from []corev1.Container) {
	for i := range min(len(to), len(from)) {
		to[i].Resources = from[i].Resources
	}
}
