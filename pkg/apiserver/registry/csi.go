package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

// csiDrivers say what a CSI driver can do and needs.
func csiDrivers(k *scheme.Kind, _ Config) *Kind {
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	return Of[*storagev1.CSIDriver]{
		Default:  defaultCSIDriver,
		Prepare:  prepareCSIDriver,
		Validate: validateCSIDriver,
		Columns: columns(boolean("AttachRequired", doc["attachRequired"]), boolean("PodInfoOnMount", doc["podInfoOnMount"]),
			boolean("StorageCapacity", doc["storageCapacity"]), column("TokenRequests", doc["tokenRequests"]),
			boolean("RequiresRepublish", doc["requiresRepublish"]), column("Modes", doc["volumeLifecycleModes"]), ageColumn()),
		Row:           csiDriverRow,
		ReturnDeleted: true,
	}.Kind(k)
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	spec := &d.Spec
	if spec.AttachRequired == nil {
		spec.AttachRequired = new(true)
	}
	for _, flag := range []**bool{&spec.PodInfoOnMount, &spec.StorageCapacity, &spec.RequiresRepublish, &spec.SELinuxMount} {
		if *flag == nil {
			*flag = new(false)
		}
	}
	if spec.FSGroupPolicy == nil {
		spec.FSGroupPolicy = new(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// prepareCSIDriver counts the changes of the spec. As upstream, a new driver has no
// generation.
func prepareCSIDriver(_ context.Context, _ Backend, new, old *storagev1.CSIDriver) error {
	if old == nil {
		return nil
	}
	new.Generation = old.Generation
	if !apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		new.Generation++
	}
	return nil
}

func validateCSIDriver(new, old *storagev1.CSIDriver) field.ErrorList {
	path, spec := field.NewPath("spec"), &new.Spec
	errs := fieldcheck.Supported(*spec.FSGroupPolicy, path.Child("fsGroupPolicy"),
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	errs = append(errs, validateTokenRequests(spec, path)...)
	for _, mode := range spec.VolumeLifecycleModes {
		errs = append(errs, fieldcheck.Supported(mode, path.Child("volumeLifecycleModes"), storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if s := spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < 10 {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *s, "must be greater than or equal to 10 seconds"))
	}
	if isTrue(spec.PreventPodSchedulingIfMissing) {
		errs = append(errs, field.Forbidden(path.Child("preventPodSchedulingIfMissing"), podspec.Unsupported))
	}
	if old == nil {
		return errs
	}
	errs = append(errs, apivalidation.ValidateImmutableField(spec.AttachRequired, old.Spec.AttachRequired, path.Child("attachedRequired"))...)
	return append(errs, apivalidation.ValidateImmutableField(spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, path.Child("volumeLifecycleModes"))...)
}

// validateTokenRequests checks that each audience is requested once, for a lifetime
// that the server grants.
func validateTokenRequests(spec *storagev1.CSIDriverSpec, path *field.Path) field.ErrorList {
	const least, most = 10 * 60, 1 << 32 // seconds
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range spec.TokenRequests {
		at := path.Child("tokenRequests").Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		switch s := r.ExpirationSeconds; {
		case s == nil:
		case *s < least:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
		case *s > most:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	if spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0 {
		at := path.Child("serviceAccountTokenInSecrets")
		errs = append(errs, field.Invalid(at, *spec.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

func csiDriverRow(d *storagev1.CSIDriver, now time.Time) []any {
	tokens, modes := "<unset>", "<none>"
	if d.Spec.TokenRequests != nil {
		var audiences []string
		for _, r := range d.Spec.TokenRequests {
			audiences = append(audiences, r.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	if len(d.Spec.VolumeLifecycleModes) > 0 {
		var texts []string
		for _, mode := range d.Spec.VolumeLifecycleModes {
			texts = append(texts, string(mode))
		}
		modes = strings.Join(texts, ",")
	}
	return []any{d.Name, isTrue(d.Spec.AttachRequired), isTrue(d.Spec.PodInfoOnMount), isTrue(d.Spec.StorageCapacity),
		tokens, isTrue(d.Spec.RequiresRepublish), modes, age(d.CreationTimestamp, now)}
}

// csiNodes list the CSI drivers of a node.
func csiNodes(k *scheme.Kind, _ Config) *Kind {
	return Of[*storagev1.CSINode]{
		Prepare: func(_ context.Context, _ Backend, new, _ *storagev1.CSINode) error {
			new.Status = storagev1.CSINodeStatus{} // upstream drops it, too, unless a feature gate is on
			return nil
		},
		Validate: validateCSINode,
		Columns:  columns(number("Drivers", "Drivers indicates the number of CSI drivers registered on the node"), ageColumn()),
		Row: func(n *storagev1.CSINode, now time.Time) []any {
			return []any{n.Name, int64(len(n.Spec.Drivers)), age(n.CreationTimestamp, now)}
		},
		ReturnDeleted: true,
	}.Kind(k)
}

func validateCSINode(new, old *storagev1.CSINode) field.ErrorList {
	path := field.NewPath("spec", "drivers")
	var errs field.ErrorList
	names := map[string]bool{}
	before := map[string]*storagev1.CSINodeDriver{}
	for i := range new.Spec.Drivers {
		d, at := &new.Spec.Drivers[i], path.Index(i)
		errs = append(errs, validateNodeDriver(d, at)...)
		if names[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names[d.Name] = true
	}
	if old == nil {
		return errs
	}
	for i := range old.Spec.Drivers {
		before[old.Spec.Drivers[i].Name] = &old.Spec.Drivers[i]
	}
	for i := range new.Spec.Drivers {
		now, was := new.Spec.Drivers[i], before[new.Spec.Drivers[i].Name]
		if was == nil {
			continue
		}
		now.Allocatable = was.Allocatable // the driver may report another limit later
		errs = append(errs, apivalidation.ValidateImmutableField(&now, was, path)...)
	}
	return errs
}

// maxCSINodeID is the maximum length of a node's id in bytes.
const maxCSINodeID = 256

func validateNodeDriver(d *storagev1.CSINodeDriver, path *field.Path) field.ErrorList {
	errs := fieldcheck.DriverName(d.Name, path.Child("name"))
	switch id := path.Child("nodeID"); {
	case d.NodeID == "":
		errs = append(errs, field.Required(id, ""))
	case len(d.NodeID) > maxCSINodeID:
		errs = append(errs, field.Invalid(id, d.NodeID, fmt.Sprintf("must be %d characters or less", maxCSINodeID)))
	}
	if a := d.Allocatable; a != nil && a.Count != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*a.Count), path.Child("allocatable", "count"))...)
	}
	for i, key := range d.TopologyKeys {
		if key == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if slices.Contains(d.TopologyKeys[:i], key) {
			errs = append(errs, field.Duplicate(path, key))
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(key), path, key)...)
	}
	return errs
}

// csiStorageCapacities say how much storage a driver has in a part of the cluster.
func csiStorageCapacities(k *scheme.Kind, _ Config) *Kind {
	doc := storagev1.CSIStorageCapacity{}.SwaggerDoc()
	return Of[*storagev1.CSIStorageCapacity]{
		Validate: validateStorageCapacity,
		Columns:  columns(column("StorageClassName", doc["storageClassName"]), column("Capacity", doc["capacity"])),
		Row: func(c *storagev1.CSIStorageCapacity, _ time.Time) []any {
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.Name, c.StorageClassName, capacity}
		},
		ReturnDeleted: true,
	}.Kind(k)
}

func validateStorageCapacity(new, old *storagev1.CSIStorageCapacity) field.ErrorList {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	var lenient metavalidation.LabelSelectorValidationOptions
	lenient.AllowInvalidLabelValueInSelector = old != nil && len(metavalidation.ValidateLabelSelector(old.NodeTopology, lenient, nil)) > 0
	errs := metavalidation.ValidateLabelSelector(new.NodeTopology, lenient, topology)
	errs = append(errs, validateSubdomain(new.StorageClassName, class)...)
	if q := new.Capacity; q != nil && q.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), q.String(), apivalidation.IsNegativeErrorMsg))
	}
	if old == nil {
		return errs
	}
	errs = append(errs, apivalidation.ValidateImmutableField(new.NodeTopology, old.NodeTopology, topology)...)
	return append(errs, apivalidation.ValidateImmutableField(new.StorageClassName, old.StorageClassName, class)...)
}
