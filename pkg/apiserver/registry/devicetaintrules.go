package registry

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// deviceTaintRules taint the devices that a selector matches.
func deviceTaintRules(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleSpec, resourcev1.DeviceTaintRuleStatus]{
		parts: func(r *resourcev1.DeviceTaintRule) (*resourcev1.DeviceTaintRuleSpec, *resourcev1.DeviceTaintRuleStatus) {
			return &r.Spec, &r.Status
		},
	}
	return Of[*resourcev1.DeviceTaintRule]{
		Prepare: func(ctx context.Context, b Backend, new, old *resourcev1.DeviceTaintRule) error {
			stampRule(new, old, cfg.Now())
			return life.prepare(ctx, b, new, old)
		},
		Validate: func(new, _ *resourcev1.DeviceTaintRule) field.ErrorList {
			path := field.NewPath("spec")
			return append(validateTaintSelector(new.Spec.DeviceSelector, path.Child("deviceSelector")),
				validateDeviceTaint(&new.Spec.Taint, path.Child("taint"))...)
		},
		Columns: columns(ageColumn()),
		Row: func(r *resourcev1.DeviceTaintRule, now time.Time) []any {
			return []any{r.Name, age(r.CreationTimestamp, now)}
		},
		ReturnDeleted: true,
		Subresources:  []*Subresource{life.status(k, nil, validateTaintRuleStatus)},
	}.Kind(k)
}

// stampRule sets the time of the taint when its effect begins: on create unless the
// user sets it, and when an update changes the effect but not the time.
func stampRule(new, old *resourcev1.DeviceTaintRule, now time.Time) {
	taint := &new.Spec.Taint
	changed := old != nil && taint.Effect != old.Spec.Taint.Effect && taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded)
	if taint.TimeAdded == nil || changed {
		stamp := metav1.NewTime(now).Rfc3339Copy()
		taint.TimeAdded = &stamp
	}
}

// validateTaintSelector validates which devices a rule taints; nil: none.
func validateTaintSelector(s *resourcev1.DeviceTaintSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s == nil {
		return nil
	}
	if s.Driver != nil {
		errs = append(errs, fieldcheck.DriverName(*s.Driver, path.Child("driver"))...)
	}
	if s.Pool != nil {
		errs = append(errs, validatePoolName(*s.Pool, path.Child("pool"))...)
	}
	if s.Device != nil {
		errs = append(errs, validateLabel(*s.Device, path.Child("device"))...)
	}
	return errs
}

func validateTaintRuleStatus(new, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	path := field.NewPath("status", "conditions")
	errs := metavalidation.ValidateConditions(new.Status.Conditions, path)
	if n := len(new.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(path, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return errs
}
