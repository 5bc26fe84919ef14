package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/podspec"
)

// deviceID identifies a device, or the share of one, in the cluster.
type deviceID struct{ driver, pool, device, share string }

func (d deviceID) String() string {
	text := d.driver + "/" + d.pool + "/" + d.device
	if d.share != "" {
		text += "/" + d.share
	}
	return text
}

func validateResourceClaimStatus(new, old *resourcev1.ResourceClaim) field.ErrorList {
	path, status := field.NewPath("status"), &new.Status
	reserved, allocation := path.Child("reservedFor"), path.Child("allocation")
	errs := validateSet(status.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, reserved,
		func(c *resourcev1.ResourceClaimConsumerReference) types.UID { return c.UID }, validateConsumer)
	allocated := map[string]bool{}
	if status.Allocation != nil {
		for _, r := range status.Allocation.Devices.Results {
			share := ""
			if r.ShareID != nil {
				share = string(*r.ShareID)
			}
			allocated[deviceID{r.Driver, r.Pool, r.Device, share}.String()] = true
		}
	}
	errs = append(errs, validateSet(status.Devices, unbounded, path.Child("devices"), statusDevice,
		func(d *resourcev1.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
			return validateDeviceStatus(d, allocated, path)
		})...)
	switch {
	case len(status.ReservedFor) == 0:
	case status.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case new.DeletionTimestamp != nil && slices.ContainsFunc(status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, c)
	}):
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	switch {
	case status.Allocation == nil:
	case old.Status.Allocation != nil:
		errs = append(errs, apivalidation.ValidateImmutableField(status.Allocation, old.Status.Allocation, allocation)...)
	default:
		errs = append(errs, validateAllocation(status.Allocation, namesOf(&new.Spec.Devices), allocation)...)
	}
	return errs
}

func statusDevice(d *resourcev1.AllocatedDeviceStatus) string {
	share := ""
	if d.ShareID != nil {
		share = *d.ShareID
	}
	return deviceID{d.Driver, d.Pool, d.Device, share}.String()
}

func validateConsumer(c *resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	errs := required(c.Resource, path.Child("resource"))
	errs = append(errs, required(c.Name, path.Child("name"))...)
	return append(errs, required(string(c.UID), path.Child("uid"))...)
}

func validateAllocation(a *resourcev1.AllocationResult, names requestNames, path *field.Path) field.ErrorList {
	devices := path.Child("devices")
	errs := validateList(a.Devices.Results, resourcev1.AllocationResultsMaxSize, devices.Child("results"),
		func(r *resourcev1.DeviceRequestAllocationResult, path *field.Path) field.ErrorList {
			return validateDeviceResult(r, names, path)
		})
	errs = append(errs, validateList(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, devices.Child("config"), // the class's and the claim's
		func(c *resourcev1.DeviceAllocationConfiguration, path *field.Path) field.ErrorList {
			errs := fieldcheck.OneOf(c.Source, path.Child("source"), resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
			errs = append(errs, names.list(c.Requests, path.Child("requests"))...)
			return append(errs, validateDeviceConfiguration(&c.DeviceConfiguration, path)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, podspec.ValidateNodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

func validateDeviceResult(r *resourcev1.DeviceRequestAllocationResult, names requestNames, path *field.Path) field.ErrorList {
	errs := names.check(&r.Request, path.Child("request"))
	errs = append(errs, fieldcheck.DriverName(r.Driver, path.Child("driver"))...)
	errs = append(errs, validatePoolName(r.Pool, path.Child("pool"))...)
	errs = append(errs, validateLabel(r.Device, path.Child("device"))...)
	errs = append(errs, validateBindingConditions(r.BindingConditions, r.BindingFailureConditions, path)...)
	errs = append(errs, validateList(r.Tolerations, resourcev1.DeviceTolerationsMaxLength, path.Child("tolerations"), validateDeviceToleration)...)
	if r.ShareID != nil {
		errs = append(errs, validateUID(string(*r.ShareID), path.Child("shareID"))...)
	}
	return append(errs, validateCapacityKeys(r.ConsumedCapacity, path.Child("consumedCapacity"))...)
}

func validateUID(uid string, path *field.Path) field.ErrorList {
	if err := uuid.Validate(uid); err != nil {
		return field.ErrorList{field.Invalid(path, uid, fmt.Sprintf("error validating uid: %v", err))}
	}
	if len(uid) != 36 || uid != strings.ToLower(uid) {
		return field.ErrorList{field.Invalid(path, uid, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters")}
	}
	return nil
}

// validateDeviceStatus validates what a driver reports of an allocated device.
func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, allocated map[string]bool, path *field.Path) field.ErrorList {
	errs := fieldcheck.DriverName(d.Driver, path.Child("driver"))
	errs = append(errs, validatePoolName(d.Pool, path.Child("pool"))...)
	errs = append(errs, validateLabel(d.Device, path.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, validateUID(*d.ShareID, path.Child("shareID"))...)
	}
	if id := statusDevice(d); !allocated[id] {
		errs = append(errs, field.Invalid(path, id, "must be an allocated device in the claim"))
	}
	if n := len(d.Conditions); n > resourcev1.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(path.Child("conditions"), n, resourcev1.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metavalidation.ValidateConditions(d.Conditions, path.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateRaw(*d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	if d.NetworkData != nil {
		errs = append(errs, validateNetworkData(d.NetworkData, path.Child("networkData"))...)
	}
	return errs
}

func validateNetworkData(n *resourcev1.NetworkDeviceData, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		errs = append(errs, field.TooLong(path.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
	}
	if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		errs = append(errs, field.TooLong(path.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
	}
	return append(errs, validateSet(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, path.Child("ips"), itself,
		func(ip *string, path *field.Path) field.ErrorList {
			return validation.IsValidInterfaceAddress(path, *ip)
		})...)
}
