package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// resourceSlices publish the devices of a driver.
func resourceSlices(k *scheme.Kind, cfg Config) *Kind {
	spec := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	count := counted(func(s *resourcev1.ResourceSlice) *resourcev1.ResourceSliceSpec { return &s.Spec })
	return Of[*resourcev1.ResourceSlice]{
		Prepare: func(ctx context.Context, b Backend, new, old *resourcev1.ResourceSlice) error {
			stampTaints(new.Spec.Devices, cfg.Now())
			return count(ctx, b, new, old)
		},
		Validate: validateResourceSlice,
		Columns: columns(column("Node", spec["nodeName"]), column("Driver", spec["driver"]),
			column("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"]), ageColumn()),
		Row: func(s *resourcev1.ResourceSlice, now time.Time) []any {
			return []any{s.Name, orUnsetPtr(s.Spec.NodeName), s.Spec.Driver, s.Spec.Pool.Name, age(s.CreationTimestamp, now)}
		},
		Fields: func(s *resourcev1.ResourceSlice) fields.Set {
			node := ""
			if s.Spec.NodeName != nil {
				node = *s.Spec.NodeName
			}
			return fields.Set{"spec.driver": s.Spec.Driver, "spec.nodeName": node, resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name}
		},
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Kind(k)
}

// stampTaints sets the time of taints that have none.
func stampTaints(devices []resourcev1.Device, now time.Time) {
	for i := range devices {
		for j := range devices[i].Taints {
			if t := &devices[i].Taints[j]; t.TimeAdded == nil {
				stamp := metav1.NewTime(now).Rfc3339Copy()
				t.TimeAdded = &stamp
			}
		}
	}
}

// place is the nodes that can use the devices: exactly one member is set.
type place struct {
	nodeName     *string
	nodeSelector *corev1.NodeSelector
	allNodes     *bool
	perDevice    *bool // only of a slice
}

// validate returns which members are set, and what is wrong with them.
func (p place) validate(emptyName string, path *field.Path) (set []string, errs field.ErrorList) {
	if p.nodeName != nil {
		if *p.nodeName == "" {
			errs = append(errs, field.Invalid(path.Child("nodeName"), "", emptyName))
		} else {
			set = append(set, "`nodeName`")
			errs = append(errs, validateSubdomain(*p.nodeName, path.Child("nodeName"))...)
		}
	}
	if p.nodeSelector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, podspec.ValidateNodeSelector(p.nodeSelector, path.Child("nodeSelector"))...)
	}
	for _, flag := range []struct {
		name string
		is   *bool
	}{{"allNodes", p.allNodes}, {"perDeviceNodeSelection", p.perDevice}} {
		switch {
		case isTrue(flag.is):
			set = append(set, "`"+flag.name+"`")
		case flag.is != nil:
			errs = append(errs, field.Invalid(path.Child(flag.name), false, "must be either unset or set to true"))
		}
	}
	return set, errs
}

// exactlyOne checks that one member is set.
func exactlyOne(set []string, text, severalText string, path *field.Path) field.ErrorList {
	switch len(set) {
	case 0:
		return field.ErrorList{field.Required(path, text)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "{"+strings.Join(set, ", ")+"}", text+severalText)}
}

func validateResourceSlice(new, old *resourcev1.ResourceSlice) field.ErrorList {
	path, spec := field.NewPath("spec"), &new.Spec
	pool := path.Child("pool")
	errs := fieldcheck.DriverName(spec.Driver, path.Child("driver"))
	errs = append(errs, validatePoolName(spec.Pool.Name, pool.Child("name"))...)
	if n := spec.Pool.ResourceSliceCount; n <= 0 {
		errs = append(errs, field.Invalid(pool.Child("resourceSliceCount"), n, "must be greater than zero"))
	}
	if n := spec.Pool.Generation; n < 0 {
		errs = append(errs, field.Invalid(pool.Child("generation"), n, "must be greater than or equal to zero"))
	}
	before := map[string]*resourcev1.Device{}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Pool.Name, old.Spec.Pool.Name, pool.Child("name"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Driver, old.Spec.Driver, path.Child("driver"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))...)
		for i := range old.Spec.Devices {
			before[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	errs = append(errs, validateSlicePlace(spec, path)...)
	if spec.PartitionTypeAttribute != nil {
		errs = append(errs, field.Forbidden(path.Child("partitionTypeAttribute"), podspec.Unsupported))
	}
	if len(spec.SkipNodeOperations) > 0 {
		errs = append(errs, field.Forbidden(path.Child("skipNodeOperations"), podspec.Unsupported))
	}
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, validateSet(spec.Devices, maxDevices(spec.Devices), path.Child("devices"), func(d *resourcev1.Device) string { return d.Name },
		func(d *resourcev1.Device, path *field.Path) field.ErrorList {
			return validateDevice(d, before[d.Name], isTrue(spec.PerDeviceNodeSelection), path)
		})...)
	return append(errs, validateSet(spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, path.Child("sharedCounters"),
		func(c *resourcev1.CounterSet) string { return c.Name },
		func(c *resourcev1.CounterSet, path *field.Path) field.ErrorList {
			return validateCounters(c.Name, c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, path.Child("name"), path.Child("counters"))
		})...)
}

func validateSlicePlace(spec *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	const text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	set, errs := place{spec.NodeName, spec.NodeSelector, spec.AllNodes, spec.PerDeviceNodeSelection}.validate("must be either unset or set to a non-empty string", path)
	if s := spec.NodeSelector; s != nil && len(s.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(path.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelectorTerms, "must have exactly one node selector term"))
	}
	return append(errs, exactlyOne(set, text, ", but multiple fields are set", path)...)
}

// maxDevices returns how many devices a slice may have: fewer if they are large.
func maxDevices(devices []resourcev1.Device) int {
	for i := range devices {
		d := &devices[i]
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return resourcev1.ResourceSliceMaxDevices
}

func validateCounters(name string, counters map[string]resourcev1.Counter, most int, nameAt, countersAt *field.Path) field.ErrorList {
	errs := required(name, nameAt)
	if name != "" {
		errs = append(errs, validateLabel(name, nameAt)...)
	}
	switch {
	case len(counters) == 0:
		return append(errs, field.Required(countersAt, ""))
	case len(counters) > most:
		return append(errs, field.TooMany(countersAt, len(counters), most))
	}
	for key := range counters {
		errs = append(errs, validateLabel(key, countersAt)...)
	}
	return errs
}

// validateDevice validates a device. Capacity and taints that old has, which may be
// nil, are not validated again.
func validateDevice(d, old *resourcev1.Device, ownPlace bool, path *field.Path) field.ErrorList {
	errs := validateLabel(d.Name, path.Child("name"))
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		return append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	for name, a := range d.Attributes {
		errs = append(errs, validateQualified(name, path.Child("attributes"))...)
		errs = append(errs, validateAttribute(&a, path.Child("attributes").Key(string(name)))...)
	}
	if old == nil || !apiequality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		for name, c := range d.Capacity {
			errs = append(errs, validateQualified(name, path.Child("capacity"))...)
			errs = append(errs, validateDeviceCapacity(&c, isTrue(d.AllowMultipleAllocations), path.Child("capacity").Key(string(name)))...)
		}
	}
	if old == nil || !apiequality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, validateList(d.Taints, resourcev1.DeviceTaintsMaxLength, path.Child("taints"), validateDeviceTaint)...)
	}
	errs = append(errs, validateSet(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, path.Child("consumesCounters"),
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(c *resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
			if len(c.CompatibilityGroups) > 0 {
				return field.ErrorList{field.Forbidden(path.Child("compatibilityGroups"), podspec.Unsupported)}
			}
			return validateCounters(c.CounterSet, c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, path.Child("counterSet"), path.Child("counters"))
		})...)
	errs = append(errs, validateDevicePlace(d, ownPlace, path)...)
	errs = append(errs, validateBindingConditions(d.BindingConditions, d.BindingFailureConditions, path)...)
	if len(d.NodeAllocatableResources) > 0 {
		errs = append(errs, field.Forbidden(path.Child("nodeAllocatableResources"), podspec.Unsupported))
	}
	return errs
}

// validateDevicePlace checks that a device says where it is if, and only if, its slice
// leaves that to the devices.
func validateDevicePlace(d *resourcev1.Device, own bool, path *field.Path) field.ErrorList {
	if !own {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
		}
		return nil
	}
	const text = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	set, errs := place{nodeName: d.NodeName, nodeSelector: d.NodeSelector, allNodes: d.AllNodes}.validate("must not be empty", path)
	return append(errs, exactlyOne(set, text, "", path)...)
}

func validateAttribute(a *resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	set := 0
	for _, is := range []bool{a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if is {
			set++
		}
	}
	for _, list := range []struct {
		name string
		set  bool
	}{{"bools", a.BoolValues != nil}, {"ints", a.IntValues != nil}, {"strings", a.StringValues != nil}, {"versions", a.VersionValues != nil}} {
		if list.set {
			set++
			errs = append(errs, field.Forbidden(path.Child(list.name), podspec.Unsupported))
		}
	}
	if s := a.StringValue; s != nil && len(*s) > resourcev1.DeviceAttributeMaxValueLength {
		errs = append(errs, field.TooLong(path.Child("string"), "", resourcev1.DeviceAttributeMaxValueLength))
	}
	if v := a.VersionValue; v != nil {
		if !semanticVersion.MatchString(*v) {
			errs = append(errs, field.Invalid(path.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(path.Child("version"), "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	if set != 1 {
		errs = append(errs, field.Invalid(path, "", "exactly one value must be specified"))
	}
	return errs
}

// validateDeviceCapacity validates how much of a device a claim may take.
func validateDeviceCapacity(c *resourcev1.DeviceCapacity, shared bool, path *field.Path) field.ErrorList {
	policy, at := c.RequestPolicy, path.Child("requestPolicy")
	switch {
	case policy == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(policy.ValidValues) > 0 && policy.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(policy.ValidValues) > 0:
		return validateValues(*policy.Default, c.Value, policy.ValidValues, at.Child("validValues"))
	case policy.ValidRange != nil && policy.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case policy.ValidRange != nil:
		return validateRange(*policy.Default, c.Value, policy.ValidRange, at.Child("validRange"))
	}
	return nil
}
