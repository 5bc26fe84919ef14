package podspec

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate checks a defaulted spec, all of it.
func Validate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	volumes, volErrs := validateVolumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, volErrs...)
	errs = append(errs, validateContainers(spec, volumes, path)...)

	errs = append(errs, oneOf(spec.RestartPolicy, path.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, validateDNS(spec, path)...)
	errs = append(errs, validateHost(spec, path)...)
	errs = append(errs, validatePodSecurity(spec, path)...)
	errs = append(errs, validatePlacement(spec, path)...)
	errs = append(errs, validateLifetime(spec, path)...)

	if name := spec.ServiceAccountName; name != "" {
		errs = append(errs, invalid(apivalidation.ValidateServiceAccountName(name, false), path.Child("serviceAccountName"), name)...)
	}
	if p := spec.PreemptionPolicy; p != nil {
		errs = append(errs, oneOf(*p, path.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, metavalidation.ValidateLabelName(string(gate.ConditionType), path.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	return append(errs, Refuse(spec, path)...)
}

// ValidateTemplate checks the template of a workload that keeps its pods running.
func ValidateTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, Validate(&t.Spec, path.Child("spec"))...)
	errs = append(errs, ValidateAppArmorAnnotations(t.Annotations, &t.Spec, path, path.Child("spec"))...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicaSet is not Supported"))
	}
	return errs
}

func validateLifetime(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *s, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	grace := path.Child("terminationGracePeriodSeconds")
	if s := spec.TerminationGracePeriodSeconds; s == nil {
		errs = append(errs, field.Required(grace, ""))
	} else {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*s, grace)...)
	}
	return errs
}

// validateHost checks what the pod is called and what it shares with its node.
func validateHost(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Hostname != "" {
		errs = append(errs, invalid(validation.IsDNS1123Label(spec.Hostname), path.Child("hostname"), spec.Hostname)...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, invalid(validation.IsDNS1123Label(spec.Subdomain), path.Child("subdomain"), spec.Subdomain)...)
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, false, nil)...)
		for j, host := range alias.Hostnames {
			errs = append(errs, invalid(validation.IsDNS1123Subdomain(host), at.Child("hostnames").Index(j), host)...)
		}
	}
	share := spec.ShareProcessNamespace
	if spec.HostPID && share != nil && *share {
		errs = append(errs, field.Invalid(path.Child("securityContext", "shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	return append(errs, validateHostUsers(spec, path)...)
}

// What a resolver takes: resolv.conf(5), and upstream's KEP-2595 for the searches.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := oneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	path = path.Child("dnsConfig")
	c := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone {
		if c == nil {
			return append(errs, field.Required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
		}
		if len(c.Nameservers) == 0 {
			errs = append(errs, field.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
		}
	}
	if c == nil {
		return errs
	}
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), c.Nameservers, "must not have more than 3 nameservers"))
	}
	for i, ip := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), ip, false, nil)...)
	}
	if len(c.Searches) > maxSearches {
		errs = append(errs, field.Invalid(path.Child("searches"), c.Searches, "must not have more than 32 search paths"))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchChars {
		errs = append(errs, field.Invalid(path.Child("searches"), c.Searches, "must not have more than 2048 characters (including spaces) in the search list"))
	}
	for i, search := range c.Searches {
		if search == "." {
			continue // the root: names are tried as they are
		}
		errs = append(errs, invalid(validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(search, ".")), path.Child("searches").Index(i), search)...)
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

// oneOf says that value is not set, or is none of the valid ones.
func oneOf[T ~string](value T, path *field.Path, valid ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(valid, value):
		return field.ErrorList{field.NotSupported(path, value, valid)}
	}
	return nil
}

// invalid makes an error of each message about value.
func invalid(messages []string, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// unique reports names that were there before.
type unique sets.Set[string]

func (u unique) check(name string, path *field.Path) field.ErrorList {
	set := sets.Set[string](u)
	if set.Has(name) {
		return field.ErrorList{field.Duplicate(path, name)}
	}
	set.Insert(name)
	return nil
}
