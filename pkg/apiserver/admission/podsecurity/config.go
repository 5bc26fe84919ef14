package podsecurity

import (
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Config is what counts in the whole cluster. The zero Config asks for nothing
// but what namespaces ask for.
type Config struct {
	Defaults Policy // where a namespace's labels say nothing
	Exempt   Exemptions
}

// Exemptions are who is not held to anything.
type Exemptions struct {
	Usernames, Namespaces, RuntimeClasses []string
}

// The file, of apiVersion pod-security.admission.config.k8s.io/v1. Its two older
// versions have the same fields.
type fileConfig struct {
	metav1.TypeMeta `json:",inline"`
	Defaults        fileDefaults   `json:"defaults"`
	Exemptions      fileExemptions `json:"exemptions"`
}

type fileDefaults struct {
	Enforce        string `json:"enforce,omitempty"`
	EnforceVersion string `json:"enforce-version,omitempty"`
	Audit          string `json:"audit,omitempty"`
	AuditVersion   string `json:"audit-version,omitempty"`
	Warn           string `json:"warn,omitempty"`
	WarnVersion    string `json:"warn-version,omitempty"`
}

type fileExemptions struct {
	Usernames      []string `json:"usernames,omitempty"`
	Namespaces     []string `json:"namespaces,omitempty"`
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`
}

const configGroup = "pod-security.admission.config.k8s.io"

// ParseConfig reads a PodSecurityConfiguration in YAML or JSON; all that is
// wrong with it is told at once.
func ParseConfig(data []byte) (Config, error) {
	var f fileConfig
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return Config{}, fmt.Errorf("decode PodSecurityConfiguration: %w", err)
	}
	versions := []string{configGroup + "/v1", configGroup + "/v1beta1", configGroup + "/v1alpha1"}
	if f.Kind != "PodSecurityConfiguration" || !slices.Contains(versions, f.APIVersion) {
		return Config{}, fmt.Errorf("expected kind PodSecurityConfiguration of %s/v1, found kind %q of %q", configGroup, f.Kind, f.APIVersion)
	}
	var c Config
	path := field.NewPath("defaults")
	errs := readStandard(path, "enforce", f.Defaults.Enforce, f.Defaults.EnforceVersion, &c.Defaults.Enforce)
	errs = append(errs, readStandard(path, "warn", f.Defaults.Warn, f.Defaults.WarnVersion, &c.Defaults.Warn)...)
	errs = append(errs, readStandard(path, "audit", f.Defaults.Audit, f.Defaults.AuditVersion, &c.Defaults.Audit)...)

	c.Exempt = Exemptions(f.Exemptions)
	path = field.NewPath("exemptions")
	errs = append(errs, names(path.Child("namespaces"), c.Exempt.Namespaces, func(s string) []string { return apivalidation.ValidateNamespaceName(s, false) })...)
	errs = append(errs, names(path.Child("runtimeClasses"), c.Exempt.RuntimeClasses, func(s string) []string { return apivalidation.NameIsDNSSubdomain(s, false) })...)
	errs = append(errs, names(path.Child("usernames"), c.Exempt.Usernames, func(s string) []string {
		if s == "" {
			return []string{"username must not be empty"}
		}
		return nil
	})...)
	return c, errs.ToAggregate()
}

// readStandard reads one level and its version; what is not said stays.
func readStandard(path *field.Path, mode, level, version string, to *Standard) field.ErrorList {
	var errs field.ErrorList
	var err error
	if level != "" {
		if to.Level, err = ParseLevel(level); err != nil {
			errs = append(errs, field.Invalid(path.Child(mode), level, err.Error()))
		}
	}
	if version != "" {
		if to.Version, err = ParseVersion(version); err != nil {
			errs = append(errs, field.Invalid(path.Child(mode+"-version"), version, err.Error()))
		}
	}
	return errs
}

func names(path *field.Path, list []string, check func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for i, name := range list {
		for _, problem := range check(name) {
			errs = append(errs, field.Invalid(path.Index(i), name, problem))
		}
		if slices.Contains(list[:i], name) {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
	}
	return errs
}
