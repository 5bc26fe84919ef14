package registry

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"podium/pkg/scheme"
)

// serviceCIDRs are ranges of cluster IPs.
func serviceCIDRs(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*networkingv1.ServiceCIDR, networkingv1.ServiceCIDRSpec, networkingv1.ServiceCIDRStatus]{
		parts: func(c *networkingv1.ServiceCIDR) (*networkingv1.ServiceCIDRSpec, *networkingv1.ServiceCIDRStatus) {
			return &c.Spec, &c.Status
		},
		uncounted: true,
	}
	return Of[*networkingv1.ServiceCIDR]{
		Prepare:  life.prepare,
		Validate: validateServiceCIDR,
		Columns:  columns(column("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]), ageColumn()),
		Row: func(c *networkingv1.ServiceCIDR, now time.Time) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		Follow:                   cfg.ranges,
		Subresources:             []*Subresource{life.status(k, nil, nil)},
	}.Kind(k)
}

// validateServiceCIDR allows one change: a second range for the other IP family.
func validateServiceCIDR(new, old *networkingv1.ServiceCIDR) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	if old == nil {
		return validateCIDRs(&new.Spec, path)
	}
	now, before := new.Spec.CIDRs, old.Spec.CIDRs
	grown := len(before) == 1 && len(now) == 2
	if len(now) != len(before) && !grown {
		return field.ErrorList{field.Invalid(path, now, apivalidation.FieldImmutableErrorMsg)}
	}
	var errs field.ErrorList
	for i, cidr := range before {
		if now[i] != cidr {
			errs = append(errs, field.Invalid(path.Index(i), now[i], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if grown {
		errs = append(errs, validateCIDRs(&new.Spec, path)...)
	}
	return errs
}

func validateCIDRs(spec *networkingv1.ServiceCIDRSpec, path *field.Path) field.ErrorList {
	switch cidrs := spec.CIDRs; {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case len(cidrs) > 2:
		return field.ErrorList{field.Invalid(path, spec, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range spec.CIDRs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(spec.CIDRs) < 2 {
		return errs
	}
	if family := netutils.IPFamilyOfCIDRString(spec.CIDRs[0]); family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(spec.CIDRs[1]) {
		errs = append(errs, field.Invalid(path, spec.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}

// ipAddresses name the owner of an IP address. Those of Services are their allocator's
// ledger.
func ipAddresses(k *scheme.Kind, _ Config) *Kind {
	return Of[*networkingv1.IPAddress]{
		Validate: validateIPAddress,
		ValidateName: func(name string, _ bool) (messages []string) {
			for _, err := range validation.IsValidIP(nil, name) {
				messages = append(messages, err.Detail)
			}
			return messages
		},
		Columns: columns(column("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]), ageColumn()),
		Row: func(a *networkingv1.IPAddress, now time.Time) []any {
			return []any{a.Name, formatParent(a.Spec.ParentRef), age(a.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

// formatParent prints a reference as resource.group/namespace/name.
func formatParent(p *networkingv1.ParentReference) string {
	if p == nil {
		return "<none>"
	}
	out := strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())
	if p.Namespace != "" {
		out += "/" + p.Namespace
	}
	return out + "/" + p.Name
}

func validateIPAddress(new, old *networkingv1.IPAddress) field.ErrorList {
	path := field.NewPath("spec", "parentRef")
	p := new.Spec.ParentRef
	var errs field.ErrorList
	if p == nil {
		errs = append(errs, field.Required(path, ""))
	} else {
		if p.Group != "" {
			errs = append(errs, validateSubdomain(p.Group, path.Child("group"))...)
		}
		errs = append(errs, validateSegment(p.Resource, path.Child("resource"))...)
		errs = append(errs, validateSegment(p.Name, path.Child("name"))...)
		if p.Namespace != "" {
			errs = append(errs, validateSegment(p.Namespace, path.Child("namespace"))...)
		}
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(p, old.Spec.ParentRef, path)...)
	}
	return errs
}
