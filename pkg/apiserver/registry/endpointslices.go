package registry

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

const (
	maxSliceEndpoints = 1000
	maxSlicePorts     = 20000
	maxAddresses      = 100
	maxHints          = 8 // of zones, and of nodes
)

func endpointSlices(k *scheme.Kind, _ Config) *Kind {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return Of[*discoveryv1.EndpointSlice]{
		Default: func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				p := &s.Ports[i]
				if p.Name == nil {
					p.Name = new("")
				}
				if p.Protocol == nil {
					p.Protocol = new(corev1.ProtocolTCP)
				}
			}
		},
		Prepare:  prepareSlice,
		Validate: validateSlice,
		Columns: columns(
			column("AddressType", doc["addressType"]),
			column("Ports", doc["ports"]),
			column("Endpoints", doc["endpoints"]),
			ageColumn()),
		Row: func(s *discoveryv1.EndpointSlice, now time.Time) []any {
			return []any{s.Name, string(s.AddressType), slicePorts(s.Ports), sliceAddresses(s.Endpoints), age(s.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func prepareSlice(_ context.Context, _ Backend, new, old *discoveryv1.EndpointSlice) error {
	for i := range new.Endpoints {
		new.Endpoints[i].DeprecatedTopology = nil // a field of v1beta1 that v1 drops on writes
	}
	if old == nil {
		new.Generation = 1
		return nil
	}
	same := apiequality.Semantic.DeepEqual(new.Endpoints, old.Endpoints) && apiequality.Semantic.DeepEqual(new.Ports, old.Ports) &&
		apiequality.Semantic.DeepEqual(new.Labels, old.Labels) && new.AddressType == old.AddressType
	new.Generation = nextGeneration(&old.ObjectMeta, same)
	return nil
}

func validateSlice(new, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := fieldcheck.OneOf(new.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(new.AddressType, old.AddressType, field.NewPath("addressType"))...)
	}
	at := field.NewPath("endpoints")
	if len(new.Endpoints) > maxSliceEndpoints {
		return append(errs, field.TooMany(at, len(new.Endpoints), maxSliceEndpoints))
	}
	for i := range new.Endpoints {
		errs = append(errs, validateEndpoint(&new.Endpoints[i], new.AddressType, at.Index(i))...)
	}
	return append(errs, validateSlicePorts(new.Ports, field.NewPath("ports"))...)
}

func validateEndpoint(e *discoveryv1.Endpoint, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case n > maxAddresses:
		errs = append(errs, field.TooMany(addresses, n, maxAddresses))
	}
	for i, address := range e.Addresses {
		errs = append(errs, validateSliceAddress(address, t, addresses.Index(i))...)
	}
	if e.NodeName != nil {
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(*e.NodeName, false), path.Child("nodeName"), *e.NodeName)...)
	}
	if e.Hostname != nil {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(*e.Hostname), path.Child("hostname"), *e.Hostname)...)
	}
	return append(errs, validateHints(e.Hints, path.Child("hints"))...)
}

// validateHints validates the zones and nodes of topology hints. If a list is too
// long, it validates neither that list nor the following one.
func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	zones, nodes := path.Child("forZones"), path.Child("forNodes")
	if n := len(h.ForZones); n > maxHints {
		return field.ErrorList{field.TooMany(zones, n, maxHints)}
	}
	var errs field.ErrorList
	for i, z := range h.ForZones {
		at := zones.Index(i).Child("name")
		if slices.Contains(h.ForZones[:i], z) {
			errs = append(errs, field.Duplicate(at, z.Name))
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsValidLabelValue(z.Name), at, z.Name)...)
	}
	if n := len(h.ForNodes); n > maxHints {
		return append(errs, field.TooMany(nodes, n, maxHints))
	}
	for i, node := range h.ForNodes {
		at := nodes.Index(i).Child("name")
		if slices.Contains(h.ForNodes[:i], node) {
			errs = append(errs, field.Duplicate(at, node.Name))
		}
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(node.Name, false), at, node.Name)...)
	}
	return errs
}

func validateSliceAddress(address string, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if t == discoveryv1.AddressTypeFQDN {
		return validation.IsFullyQualifiedDomainName(path, address)
	}
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return validation.IsValidIPForLegacyField(path, address, true, nil)
	case t == discoveryv1.AddressTypeIPv4 && !ip.Is4():
		return field.ErrorList{field.Invalid(path, address, "must be an IPv4 address")}
	case t == discoveryv1.AddressTypeIPv6 && !ip.Is6():
		return field.ErrorList{field.Invalid(path, address, "must be an IPv6 address")}
	}
	return validateEndpointIP(ip, path)
}

func validateSlicePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxSlicePorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxSlicePorts)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range ports {
		p, at := &ports[i], path.Index(i)
		if p.Name == nil || p.Protocol == nil {
			errs = append(errs, field.Required(at, "name and protocol"))
			continue
		}
		name := *p.Name
		if name != "" {
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(name), at.Child("name"), name)...)
		}
		if names[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		names[name] = true
		errs = append(errs, fieldcheck.OneOf(*p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if p.Port != nil {
			errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(*p.Port)), at.Child("port"), *p.Port)...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(*p.AppProtocol), at.Child("appProtocol"), *p.AppProtocol)...)
		}
	}
	return errs
}

func slicePorts(ports []discoveryv1.EndpointPort) string {
	var list []string
	for _, p := range ports {
		if p.Port == nil {
			list = append(list, "*")
		} else {
			list = append(list, strconv.Itoa(int(*p.Port)))
		}
	}
	return orUnset(moreThan(list, 3))
}

func sliceAddresses(endpoints []discoveryv1.Endpoint) string {
	var list []string
	for i := range endpoints {
		list = append(list, endpoints[i].Addresses...)
	}
	return orUnset(moreThan(list, 3))
}

func orUnset(s string) string {
	if s == "" {
		return "<unset>"
	}
	return s
}
