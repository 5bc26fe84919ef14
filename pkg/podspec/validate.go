package podspec

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
)

// ValidatePod validates a new pod, apart from its name, namespace and labels.
func ValidatePod(pod *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateMirror(pod)
	errs = append(errs, ValidateAppArmorAnnotations(pod.Annotations, &pod.Spec, field.NewPath("metadata"), path)...)
	if len(pod.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
	}
	errs = append(errs, ValidateClaimNames(pod, path.Child("volumes"))...)
	errs = append(errs, RequireImages(pod.Spec.Volumes, path.Child("volumes"))...)
	return append(errs, Validate(&pod.Spec, path)...)
}

// Validate validates a defaulted spec and rejects unsupported fields. It returns
// all errors at once.
func Validate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	volumes, volErrs := validateVolumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, volErrs...)
	errs = append(errs, validateContainers(spec, volumes, path)...)

	errs = append(errs, fieldcheck.OneOf(spec.RestartPolicy, path.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, validateDNS(spec, path)...)
	errs = append(errs, validateHost(spec, path)...)
	errs = append(errs, validatePodSecurity(spec, path)...)
	errs = append(errs, validatePlacement(spec, path)...)
	errs = append(errs, validateLifetime(spec, path)...)

	if name := spec.ServiceAccountName; name != "" {
		errs = append(errs, fieldcheck.Invalid(apivalidation.ValidateServiceAccountName(name, false), path.Child("serviceAccountName"), name)...)
	}
	if class := spec.RuntimeClassName; class != nil {
		errs = append(errs, fieldcheck.Invalid(apivalidation.NameIsDNSSubdomain(*class, false), path.Child("runtimeClassName"), *class)...)
	}
	if spec.Overhead != nil {
		errs = append(errs, ValidateResources(&corev1.ResourceRequirements{Limits: spec.Overhead}, path.Child("overhead"))...)
	}
	errs = append(errs, validatePodResources(spec, path)...)
	errs = append(errs, validateResourceClaims(spec, path)...)
	if p := spec.PreemptionPolicy; p != nil {
		errs = append(errs, fieldcheck.OneOf(*p, path.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	errs = append(errs, validateGates(spec, path)...)
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, metavalidation.ValidateLabelName(string(gate.ConditionType), path.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	return append(errs, Refuse(spec, path)...)
}

// ValidateTemplate validates the pod template of a workload of a kind whose pods
// always restart.
func ValidateTemplate(t *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	errs := ValidateAnyTemplate(t, path)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// ValidateAnyTemplate checks the template of pods that may also end.
func ValidateAnyTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, Validate(&t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return append(errs, ValidateAppArmorAnnotations(t.Annotations, &t.Spec, path, path.Child("spec"))...)
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

// validateHost validates host names, host aliases and the namespaces that the pod
// shares with its node.
func validateHost(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Hostname != "" {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(spec.Hostname), path.Child("hostname"), spec.Hostname)...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Label(spec.Subdomain), path.Child("subdomain"), spec.Subdomain)...)
	}
	errs = append(errs, validateHostnameOverride(spec, path)...)
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, false, nil)...)
		for j, host := range alias.Hostnames {
			errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(host), at.Child("hostnames").Index(j), host)...)
		}
	}
	share := spec.ShareProcessNamespace
	if spec.HostPID && share != nil && *share {
		errs = append(errs, field.Invalid(path.Child("securityContext", "shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	return append(errs, validateHostUsers(spec, path)...)
}

// maxHostname is the kernel's limit for a hostname.
const maxHostname = 64

// validateHostnameOverride checks that the name fits the kernel, and that the pod has a
// hostname of its own, which nothing else determines.
func validateHostnameOverride(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.HostnameOverride == nil {
		return nil
	}
	name, at := *spec.HostnameOverride, path.Child("hostnameOverride")
	errs := fieldcheck.Invalid(validation.IsDNS1123Subdomain(name), at, name)
	if len(name) > maxHostname {
		errs = append(errs, field.TooLong(at, name, maxHostname))
	}
	const detail = "may not be set when `hostnameOverride` is set"
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(path.Child("hostNetwork"), detail))
	}
	if fqdn := spec.SetHostnameAsFQDN; fqdn != nil && *fqdn {
		errs = append(errs, field.Forbidden(path.Child("setHostnameAsFQDN"), detail))
	}
	return errs
}

// Limits of resolvers: resolv.conf(5), and KEP-2595 for the search list.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := fieldcheck.OneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
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
			continue // the root domain: names are resolved without a suffix
		}
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(search, ".")), path.Child("searches").Index(i), search)...)
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

// unique reports duplicate names.
type unique sets.Set[string]

func (u unique) check(name string, path *field.Path) field.ErrorList {
	set := sets.Set[string](u)
	if set.Has(name) {
		return field.ErrorList{field.Duplicate(path, name)}
	}
	set.Insert(name)
	return nil
}
