package registry

import (
	"reflect"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func resourceClaims(k *scheme.Kind, v deviceChecks) *Kind {
	life := lifecycle[*resourcev1.ResourceClaim, resourcev1.ResourceClaimSpec, resourcev1.ResourceClaimStatus]{
		parts: func(c *resourcev1.ResourceClaim) (*resourcev1.ResourceClaimSpec, *resourcev1.ResourceClaimStatus) {
			return &c.Spec, &c.Status
		},
		uncounted: true,
	}
	return Of[*resourcev1.ResourceClaim]{
		Default: func(c *resourcev1.ResourceClaim) { defaultClaimSpec(&c.Spec) },
		Prepare: life.prepare,
		Validate: func(new, old *resourcev1.ResourceClaim) field.ErrorList {
			path := field.NewPath("spec")
			if old != nil {
				return apivalidation.ValidateImmutableField(new.Spec, old.Spec, path)
			}
			return v.claim(&new.Spec.Devices, path.Child("devices"))
		},
		Columns: columns(column("State", "A summary of the current state (allocated, pending, reserved, etc.)."), ageColumn()),
		Row: func(c *resourcev1.ResourceClaim, now time.Time) []any {
			return []any{c.Name, deviceClaimState(c), age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources:             []*Subresource{life.status(k, dropDeallocated, validateResourceClaimStatus)},
	}.Kind(k)
}

// dropDeallocated drops what drivers have said about devices when a write takes them from
// the claim.
func dropDeallocated(new, old *resourcev1.ResourceClaim) {
	if old.Status.Allocation != nil && new.Status.Allocation == nil {
		new.Status.Devices = nil
	}
}

// deviceClaimState returns the printed state, such as "allocated,reserved".
func deviceClaimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

func resourceClaimTemplates(k *scheme.Kind, v deviceChecks) *Kind {
	return Of[*resourcev1.ResourceClaimTemplate]{
		Default: func(t *resourcev1.ResourceClaimTemplate) { defaultClaimSpec(&t.Spec.Spec) },
		Validate: func(new, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
			path := field.NewPath("spec")
			if old != nil {
				return apivalidation.ValidateImmutableField(new.Spec, old.Spec, path)
			}
			return append(validateTemplateMeta(&new.Spec.ObjectMeta, path.Child("metadata")),
				v.claim(&new.Spec.Spec.Devices, path.Child("spec", "devices"))...)
		},
		Columns: columns(ageColumn()),
		Row: func(t *resourcev1.ResourceClaimTemplate, now time.Time) []any {
			return []any{t.Name, age(t.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Kind(k)
}

// validateTemplateMeta checks that a template sets only labels and annotations.
func validateTemplateMeta(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(meta.Annotations, path.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(meta.Labels, path.Child("labels"))...)
	rest := *meta
	rest.Labels, rest.Annotations = nil, nil
	all := reflect.ValueOf(rest)
	for i := range all.NumField() {
		if !all.Field(i).IsZero() {
			name, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(path.Child(name), "cannot be set"))
		}
	}
	return errs
}

// defaultClaimSpec makes a request one for a single device, and tolerations ones of a
// value.
func defaultClaimSpec(spec *resourcev1.ResourceClaimSpec) {
	ask := func(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
		orDefault(mode, resourcev1.DeviceAllocationModeExactCount)
		if *mode == resourcev1.DeviceAllocationModeExactCount {
			orDefault(count, 1)
		}
		for i := range tolerations {
			orDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
		}
	}
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			ask(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			ask(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

// requestNames are the names of the requests of a claim, and "request/subrequest" of
// those that are alternatives.
type requestNames map[string]bool

func namesOf(claim *resourcev1.DeviceClaim) requestNames {
	names := requestNames{}
	for _, r := range claim.Requests {
		names[r.Name] = true
		for _, s := range r.FirstAvailable {
			names[r.Name+"/"+s.Name] = true
		}
	}
	return names
}

// check validates the name of a request.
func (n requestNames) check(name *string, path *field.Path) field.ErrorList {
	const must = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	if strings.Count(*name, "/") > 1 {
		return field.ErrorList{field.Invalid(path, *name, must)}
	}
	var errs field.ErrorList
	for segment := range strings.SplitSeq(*name, "/") {
		errs = append(errs, validateLabel(segment, path)...)
	}
	if !n[*name] {
		errs = append(errs, field.Invalid(path, *name, must))
	}
	return errs
}

// list validates a list of names of requests.
func (n requestNames) list(names []string, path *field.Path) field.ErrorList {
	return validateSet(names, resourcev1.DeviceRequestsMaxSize, path, itself, n.check)
}

func (v deviceChecks) claim(claim *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	names := namesOf(claim)
	errs := validateSet(claim.Requests, resourcev1.DeviceRequestsMaxSize, path.Child("requests"),
		func(r *resourcev1.DeviceRequest) string { return r.Name }, v.request)
	errs = append(errs, validateList(claim.Constraints, resourcev1.DeviceConstraintsMaxSize, path.Child("constraints"),
		func(c *resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
			return append(names.list(c.Requests, path.Child("requests")), validateConstraint(c, path)...)
		})...)
	return append(errs, validateList(claim.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClaimConfiguration, path *field.Path) field.ErrorList {
			return append(names.list(c.Requests, path.Child("requests")), validateDeviceConfiguration(&c.DeviceConfiguration, path)...)
		})...)
}

func validateConstraint(c *resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
	const one = `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`
	switch {
	case c.MatchAttribute != nil:
		return validateFullyQualified(*c.MatchAttribute, path.Child("matchAttribute"))
	case c.DistinctAttribute != nil:
		return validateFullyQualified(*c.DistinctAttribute, path.Child("distinctAttribute"))
	}
	return field.ErrorList{field.Required(path, one)}
}

func (v deviceChecks) request(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	errs := validateLabel(r.Name, path.Child("name"))
	switch alternatives := len(r.FirstAvailable) > 0; {
	case alternatives && r.Exactly != nil:
		return append(errs, field.Invalid(path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case alternatives:
		return append(errs, validateSet(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, path.Child("firstAvailable"),
			func(s *resourcev1.DeviceSubRequest) string { return s.Name },
			func(s *resourcev1.DeviceSubRequest, path *field.Path) field.ErrorList {
				return append(validateLabel(s.Name, path.Child("name")), v.exact(&resourcev1.ExactDeviceRequest{
					DeviceClassName: s.DeviceClassName, Selectors: s.Selectors, AllocationMode: s.AllocationMode, Count: s.Count,
					Tolerations: s.Tolerations, Capacity: s.Capacity, DerivedAttributes: s.DerivedAttributes,
				}, path)...)
			})...)
	case r.Exactly == nil:
		return append(errs, field.Required(path, "exactly one of `exactly` or `firstAvailable` is required"))
	}
	return append(errs, v.exact(r.Exactly, path.Child("exactly"))...)
}

func (v deviceChecks) exact(r *resourcev1.ExactDeviceRequest, path *field.Path) field.ErrorList {
	errs := required(r.DeviceClassName, path.Child("deviceClassName"))
	if r.DeviceClassName != "" {
		errs = append(errs, validateSubdomain(r.DeviceClassName, path.Child("deviceClassName"))...)
	}
	errs = append(errs, v.selectors(r.Selectors, nil, path.Child("selectors"))...)
	switch count := path.Child("count"); r.AllocationMode {
	case resourcev1.DeviceAllocationModeAll:
		if r.Count != 0 {
			errs = append(errs, field.Invalid(count, r.Count, "must not be specified when allocationMode is 'All'"))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if r.Count <= 0 {
			errs = append(errs, field.Invalid(count, r.Count, "must be greater than zero"))
		}
	default:
		errs = append(errs, fieldcheck.Supported(r.AllocationMode, path.Child("allocationMode"), resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
	}
	if len(r.DerivedAttributes) > 0 {
		errs = append(errs, field.Forbidden(path.Child("derivedAttributes"), podspec.Unsupported))
	}
	errs = append(errs, validateList(r.Tolerations, resourcev1.DeviceTolerationsMaxLength, path.Child("tolerations"), validateDeviceToleration)...)
	if r.Capacity != nil {
		errs = append(errs, validateCapacityKeys(r.Capacity.Requests, path.Child("capacity", "requests"))...)
	}
	return errs
}

func validateCapacityKeys(amounts map[resourcev1.QualifiedName]resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name := range amounts {
		errs = append(errs, validateQualified(name, path)...)
	}
	return errs
}
