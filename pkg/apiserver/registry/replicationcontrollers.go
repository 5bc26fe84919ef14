package registry

import (
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func replicationControllers(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*corev1.ReplicationController, corev1.ReplicationControllerSpec, corev1.ReplicationControllerStatus]{
		parts: func(rc *corev1.ReplicationController) (*corev1.ReplicationControllerSpec, *corev1.ReplicationControllerStatus) {
			return &rc.Spec, &rc.Status
		},
	}
	return Of[*corev1.ReplicationController]{
		Default: defaultReplicationController,
		Prepare: life.prepare,
		Validate: validatePrivileged(cfg, validateReplicationController, func(rc *corev1.ReplicationController) (*corev1.PodSpec, *field.Path) {
			return templateSpec(replicationTemplate(rc))
		}),
		Warnings: func(new, _ *corev1.ReplicationController) []string {
			return templateWarnings(new.Name, replicationTemplate(new))
		},
		Columns: replicaSetColumns(),
		Row:     replicationControllerRow,
		Fields: func(rc *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
		},
		AllowUnconditionalUpdate: true,
		OrphanByDefault:          true,
		Subresources: []*Subresource{
			life.status(k, nil, validateReplicationControllerStatus),
			scalable[*corev1.ReplicationController]{
				replicas: func(rc *corev1.ReplicationController) **int32 { return &rc.Spec.Replicas },
				running:  func(rc *corev1.ReplicationController) int32 { return rc.Status.Replicas },
				selector: func(rc *corev1.ReplicationController) *metav1.LabelSelector {
					return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
				},
			}.subresource(),
		},
	}.Kind(k)
}

// replicationTemplate returns the pod template of rc, an empty one if rc has none.
func replicationTemplate(rc *corev1.ReplicationController) *corev1.PodTemplateSpec {
	if rc.Spec.Template == nil {
		return &corev1.PodTemplateSpec{}
	}
	return rc.Spec.Template
}

// defaultReplicationController takes the selector and the labels from the template
// if they are not set.
func defaultReplicationController(rc *corev1.ReplicationController) {
	newIfNil(&rc.Spec.Replicas, 1)
	t := rc.Spec.Template
	if t == nil {
		return
	}
	if len(rc.Spec.Selector) == 0 && len(t.Labels) > 0 {
		rc.Spec.Selector = maps.Clone(t.Labels)
	}
	if len(rc.Labels) == 0 && len(t.Labels) > 0 {
		rc.Labels = maps.Clone(t.Labels)
	}
	podspec.Default(&t.Spec)
}

func validateReplicationController(new, old *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	spec := &new.Spec
	errs := apivalidation.ValidateNonnegativeField(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if spec.Replicas != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*spec.Replicas), path.Child("replicas"))...)
	}
	at := path.Child("template")
	if spec.Template == nil {
		return append(errs, field.Required(at, ""))
	}
	if !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = old.Spec.Template
	}
	return append(errs, validateTemplate(spec.Template, before, "ReplicationController", at)...)
}

func validateReplicationControllerStatus(new, _ *corev1.ReplicationController) field.ErrorList {
	s := &new.Status
	return validateReplicaCounts(s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, s.ObservedGeneration)
}

func replicationControllerRow(rc *corev1.ReplicationController, now time.Time) []any {
	cells := templateCells(replicationTemplate(rc), nil)
	return []any{rc.Name, desired(rc.Spec.Replicas), int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), age(rc.CreationTimestamp, now),
		cells[0], cells[1], formatLabels(rc.Spec.Selector)}
}
