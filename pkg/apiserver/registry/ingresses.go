package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// ingressClassAnnotation named the class of an Ingress before spec.ingressClassName.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

func ingresses(k *scheme.Kind, _ Config) *Kind {
	life := lifecycle[*networkingv1.Ingress, networkingv1.IngressSpec, networkingv1.IngressStatus]{
		parts: func(i *networkingv1.Ingress) (*networkingv1.IngressSpec, *networkingv1.IngressStatus) {
			return &i.Spec, &i.Status
		},
	}
	return Of[*networkingv1.Ingress]{
		Prepare:  life.prepare,
		Validate: validateIngress,
		Warnings: func(new, old *networkingv1.Ingress) []string {
			if _, set := new.Annotations[ingressClassAnnotation]; set && old == nil {
				return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation)}
			}
			return nil
		},
		Columns: columns(
			column("Class", "The name of the IngressClass resource that should be used for additional configuration"),
			column("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
			column("Address", "Address is a list containing ingress points for the load-balancer"),
			column("Ports", "Ports of TLS configurations that open"),
			ageColumn()),
		Row:                      ingressRow,
		AllowUnconditionalUpdate: true,
		NoController:             true,
		Subresources:             []*Subresource{life.status(k, nil, validateIngressStatus)},
	}.Kind(k)
}

func validateIngress(new, old *networkingv1.Ingress) field.ErrorList {
	path := field.NewPath("spec")
	check := ingressCheck{
		anySecret: old != nil && slices.ContainsFunc(old.Spec.TLS, func(t networkingv1.IngressTLS) bool { return len(validateTLSSecret(t.SecretName)) > 0 }),
		anyWildcardRule: old != nil && slices.ContainsFunc(old.Spec.Rules, func(r networkingv1.IngressRule) bool {
			return strings.Contains(r.Host, "*") && len(ingressCheck{}.paths(r.HTTP, nil)) > 0
		}),
	}
	errs := check.spec(&new.Spec, path)
	annotation, set := new.Annotations[ingressClassAnnotation]
	if class := new.Spec.IngressClassName; old == nil && set && class != nil && annotation != *class {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(ingressClassAnnotation), annotation, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

// ingressCheck validates the spec of an Ingress. What an earlier server accepted and
// the stored object has stays valid.
type ingressCheck struct {
	anySecret       bool // accept any name of a TLS secret
	anyWildcardRule bool // do not validate the paths of wildcard hosts
}

func (c ingressCheck) spec(spec *networkingv1.IngressSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i := range spec.Rules {
		errs = append(errs, c.rule(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	for i := range spec.TLS {
		tls, at := &spec.TLS[i], path.Child("tls").Index(i)
		for j, host := range tls.Hosts {
			errs = append(errs, validateHost(host, at.Child("hosts").Index(j))...)
		}
		if !c.anySecret {
			errs = append(errs, fieldcheck.Invalid(validateTLSSecret(tls.SecretName), at.Child("secretName"), tls.SecretName)...)
		}
	}
	if class := spec.IngressClassName; class != nil {
		errs = append(errs, validateSubdomain(*class, path.Child("ingressClassName"))...)
	}
	return errs
}

// validateTLSSecret returns what is wrong with the name; "" is valid.
func validateTLSSecret(name string) []string {
	if name == "" {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, false)
}

// validateHost validates a DNS name, of which the first label may be a wildcard.
func validateHost(host string, path *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return fieldcheck.Invalid(validation.IsWildcardDNS1123Subdomain(host), path, host)
	}
	return fieldcheck.Invalid(validation.IsDNS1123Subdomain(host), path, host)
}

func (c ingressCheck) rule(r *networkingv1.IngressRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Host != "" {
		errs = append(errs, validateNotIP(r.Host, path.Child("host"))...)
		errs = append(errs, validateHost(r.Host, path.Child("host"))...)
	}
	if c.anyWildcardRule && strings.Contains(r.Host, "*") {
		return errs
	}
	return append(errs, c.paths(r.HTTP, path.Child("http"))...)
}

func validateNotIP(host string, path *field.Path) field.ErrorList {
	if netutils.ParseIPSloppy(host) != nil {
		return field.ErrorList{field.Invalid(path, host, "must be a DNS name, not an IP address")}
	}
	return nil
}

func (c ingressCheck) paths(http *networkingv1.HTTPIngressRuleValue, path *field.Path) field.ErrorList {
	if http == nil {
		return nil
	}
	at := path.Child("paths")
	if len(http.Paths) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i := range http.Paths {
		errs = append(errs, validateIngressPath(&http.Paths[i], at.Index(i))...)
	}
	return errs
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	at := path.Child("path")
	invalid := func(bad bool, message string) {
		if bad {
			errs = append(errs, field.Invalid(at, p.Path, message))
		}
	}
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		invalid(!strings.HasPrefix(p.Path, "/"), "must be an absolute path")
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			invalid(strings.Contains(p.Path, part), fmt.Sprintf("must not contain '%s'", part))
		}
		for _, end := range []string{"/..", "/."} {
			invalid(strings.HasSuffix(p.Path, end), fmt.Sprintf("cannot end with '%s'", end))
		}
	case networkingv1.PathTypeImplementationSpecific:
		invalid(p.Path != "" && !strings.HasPrefix(p.Path, "/"), "must be an absolute path")
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType,
			[]networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}))
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name, path.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	var errs field.ErrorList
	name, port := path.Child("service", "name"), &b.Service.Port
	if b.Service.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNS1035Label(b.Service.Name, false), name, b.Service.Name)...)
	}
	switch {
	case port.Name != "" && port.Number != 0:
		return append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		return append(errs, fieldcheck.Invalid(validation.IsValidPortName(port.Name), path.Child("service", "port", "name"), port.Name)...)
	case port.Number != 0:
		return append(errs, fieldcheck.Invalid(validation.IsValidPortNum(int(port.Number)), path.Child("service", "port", "number"), port.Number)...)
	}
	return append(errs, field.Required(path, "port name or number is required"))
}

func validateIngressStatus(new, old *networkingv1.Ingress) field.ErrorList {
	var known []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		known = append(known, in.IP)
	}
	var errs field.ErrorList
	for i, in := range new.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(i)
		if in.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, false, known)...)
		}
		if in.Hostname != "" {
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(in.Hostname), at.Child("hostname"), in.Hostname)...)
			errs = append(errs, validateNotIP(in.Hostname, at.Child("hostname"))...)
		}
	}
	return errs
}

func ingressRow(i *networkingv1.Ingress, now time.Time) []any {
	class, ports := "", "80"
	if i.Spec.IngressClassName != nil {
		class = *i.Spec.IngressClassName
	}
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	var addresses []string
	for _, in := range i.Status.LoadBalancer.Ingress {
		switch {
		case in.IP != "":
			addresses = append(addresses, in.IP)
		case in.Hostname != "":
			addresses = append(addresses, in.Hostname)
		}
	}
	return []any{i.Name, orNone(class), ingressHosts(i.Spec.Rules), strings.Join(addresses, ","), ports, age(i.CreationTimestamp, now)}
}

// ingressHosts returns the printed hosts: three at most, and "*" for all hosts.
func ingressHosts(rules []networkingv1.IngressRule) string {
	var hosts []string
	for _, r := range rules {
		if r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	if len(hosts) == 0 {
		return "*"
	}
	return moreThan(hosts, 3)
}
