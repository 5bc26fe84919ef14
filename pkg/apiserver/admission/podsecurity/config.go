package podsecurity

import (
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"
)

// Config is the cluster-wide configuration. The zero Config adds nothing to the
// namespaces' labels.
type Config struct {
	Defaults api.Policy // used where a namespace has no label; the zero value: privileged, latest
	Exempt   Exemptions
}

// complete returns c with its defaults filled in.
func (c Config) complete() Config {
	for _, to := range []*api.LevelVersion{&c.Defaults.Enforce, &c.Defaults.Audit, &c.Defaults.Warn} {
		if to.Level == "" {
			to.Level = api.LevelPrivileged
		}
		if to.Version == (api.Version{}) {
			to.Version = api.LatestVersion()
		}
	}
	return c
}

// Exemptions are the users, namespaces and runtime classes that are not
// evaluated.
type Exemptions struct {
	Usernames, Namespaces, RuntimeClasses []string
}

// fileConfig is the file, of apiVersion
// pod-security.admission.config.k8s.io/v1. Its two older versions have the same
// fields.
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

// ParseConfig reads a PodSecurityConfiguration in YAML or JSON. Its error names
// everything that is invalid.
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
	return c.complete(), errs.ToAggregate()
}

// readStandard parses a level and its version into to. An empty text leaves the
// field as it is.
func readStandard(path *field.Path, mode, level, version string, to *api.LevelVersion) field.ErrorList {
	var errs field.ErrorList
	var err error
	if level != "" {
		if to.Level, err = api.ParseLevel(level); err != nil {
			errs = append(errs, field.Invalid(path.Child(mode), level, err.Error()))
		}
	}
	if version != "" {
		if to.Version, err = api.ParseVersion(version); err != nil {
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
