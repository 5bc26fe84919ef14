package registry

//lint:file-ignore SA1019 Endpoints are deprecated, and served for those who still read them.

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

func endpoints(k *scheme.Kind, _ Config) *Kind {
	doc := corev1.Endpoints{}.SwaggerDoc()
	return Of[*corev1.Endpoints]{
		Default: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					orDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		Validate: func(new, _ *corev1.Endpoints) field.ErrorList {
			return validateSubsets(new.Subsets, field.NewPath("subsets"))
		},
		Columns: columns(column("Endpoints", doc["subsets"]), ageColumn()),
		Row: func(e *corev1.Endpoints, now time.Time) []any {
			return []any{e.Name, orNone(moreThan(subsetAddresses(e.Subsets), 3)), age(e.CreationTimestamp, now)}
		},
		Deprecated:               "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Kind(k)
}

func validateSubsets(subsets []corev1.EndpointSubset, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range subsets {
		s, at := &subsets[i], path.Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range s.Addresses {
			errs = append(errs, validateAddress(&s.Addresses[j], at.Child("addresses").Index(j))...)
		}
		for j := range s.NotReadyAddresses {
			errs = append(errs, validateAddress(&s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))...)
		}
		for j := range s.Ports {
			errs = append(errs, validateEndpointPort(&s.Ports[j], len(s.Ports) > 1, at.Child("ports").Index(j))...)
		}
	}
	return errs
}

func validateAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ip, err := netip.ParseAddr(a.IP); err != nil {
		errs = validation.IsValidIPForLegacyField(path.Child("ip"), a.IP, false, nil)
	} else {
		errs = validateEndpointIP(ip, path.Child("ip"))
	}
	if a.Hostname != "" {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(a.Hostname), path.Child("hostname"), a.Hostname)...)
	}
	if a.NodeName != nil {
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(*a.NodeName, false), path.Child("nodeName"), *a.NodeName)...)
	}
	return errs
}

func validateEndpointPort(p *corev1.EndpointPort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(p.Name), path.Child("name"), p.Name)...)
	} else if named {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(p.Port)), path.Child("port"), p.Port)...)
	errs = append(errs, fieldcheck.OneOf(p.Protocol, path.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	if p.AppProtocol != nil {
		errs = append(errs, fieldcheck.Invalid(validation.IsQualifiedName(*p.AppProtocol), path.Child("appProtocol"), *p.AppProtocol)...)
	}
	return errs
}

func subsetAddresses(subsets []corev1.EndpointSubset) []string {
	var list []string
	for i := range subsets {
		s := &subsets[i]
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				list = append(list, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return list
}

// moreThan joins at most max elements of list and appends the number of the others.
func moreThan(list []string, max int) string {
	if len(list) > max {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:max], ","), len(list)-max)
	}
	return strings.Join(list, ",")
}
