package registry

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func leases(k *scheme.Kind, _ Config) *Kind {
	doc := coordinationv1.LeaseSpec{}.SwaggerDoc()
	return Of[*coordinationv1.Lease]{
		Validate: validateLease,
		Columns:  columns(column("Holder", doc["holderIdentity"]), ageColumn()),
		Row: func(l *coordinationv1.Lease, now time.Time) []any {
			holder := ""
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			return []any{l.Name, holder, age(l.CreationTimestamp, now)}
		},
		AllowCreateOnUpdate: true,
	}.Kind(k)
}

func validateLease(new, _ *coordinationv1.Lease) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if s := new.Spec.LeaseDurationSeconds; s != nil && *s <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *s, "must be greater than 0"))
	}
	if n := new.Spec.LeaseTransitions; n != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), path.Child("leaseTransitions"))...)
	}
	if new.Spec.Strategy != nil {
		errs = append(errs, field.Forbidden(path.Child("strategy"), podspec.Unsupported))
	}
	if new.Spec.PreferredHolder != nil {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), podspec.Unsupported))
	}
	return errs
}
