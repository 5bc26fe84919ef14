package encryption

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Valid key sizes in bytes.
var (
	aesKeySizes       = []int{16, 24, 32}
	secretboxKeySizes = []int{32}
)

// everything is the wildcard for all resources of all groups.
const everything = "*.*"

// validate validates a configuration as upstream does, with the same messages. It
// never includes values that may be keys.
func (c *Configuration) validate() field.ErrorList {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{field.Required(root, "at least one resources is required")}
	}
	var errs field.ErrorList
	plugins := sets.New[string]()
	earlier := sets.New[string]()
	for i, rc := range c.Resources {
		resources, providers := root.Index(i).Child("resources"), root.Index(i).Child("providers")
		if len(rc.Resources) == 0 {
			errs = append(errs, field.Required(resources, fmt.Sprintf("at least one %s is required", resources)))
		}
		errs = append(errs, validateOverlap(rc.Resources, resources)...)
		for j, name := range rc.Resources {
			errs = append(errs, validateResource(name, earlier, resources.Index(j))...)
		}
		earlier.Insert(rc.Resources...)
		if len(rc.Providers) == 0 {
			errs = append(errs, field.Required(providers, fmt.Sprintf("at least one %s is required", providers)))
		}
		for j, p := range rc.Providers {
			errs = append(errs, p.validate(providers.Index(j), plugins)...)
		}
	}
	return errs
}

// validateOverlap returns an error if a wildcard of the list masks another entry.
func validateOverlap(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if sets.New(names...).Len() < len(names) {
		errs = append(errs, field.Invalid(path, names, "the same resource cannot be specified multiple times"))
	}
	covered := func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return other != name && masks(other, name) })
	}
	if slices.ContainsFunc(names, covered) {
		errs = append(errs, field.Invalid(path, names, "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"))
	}
	return errs
}

// masks reports whether a wildcard covers name.
func masks(wildcard, name string) bool {
	return wildcard == everything || strings.HasPrefix(wildcard, "*.") && wildcard == wildcardOf(name)
}

// wildcardOf returns the wildcard for the group of a resource.
func wildcardOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return "*." + group
}

// validateResource validates one name. earlier holds the names of the preceding
// entries.
func validateResource(name string, earlier sets.Set[string], path *field.Path) field.ErrorList {
	resource, group, _ := strings.Cut(name, ".")
	problem := ""
	switch {
	case strings.ToLower(name) != name:
		problem = "resource name should not contain capital letters"
	case name == "*":
		problem = "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	case name == "apiserveripinfo" || name == "serviceipallocations" || name == "servicenodeportallocations":
		problem = "resources which do not have REST API/s cannot be encrypted"
	case group == "events.k8s.io":
		problem = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	case group == "extensions":
		problem = "'extensions' group has been removed and cannot be used for encryption"
	case group == "*" && resource != "*":
		problem = "encrypting the same resource across groups is not supported"
	case resource == "" || strings.Contains(name, "/"):
		problem = "a resource is written as in secrets or deployments.apps"
	}
	for _, wildcard := range []string{wildcardOf(name), everything} {
		if problem == "" && earlier.Has(wildcard) {
			problem = fmt.Sprintf("resource %q is masked by earlier rule %q", name, wildcard)
		}
	}
	if problem == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, problem)}
}

func (p *ProviderConfiguration) validate(path *field.Path, plugins sets.Set[string]) field.ErrorList {
	found := 0
	for _, set := range []bool{p.AESGCM != nil, p.AESCBC != nil, p.Secretbox != nil, p.Identity != nil, p.KMS != nil} {
		if set {
			found++
		}
	}
	switch {
	case found == 0:
		return field.ErrorList{field.Required(path, "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity")}
	case found > 1:
		return field.ErrorList{field.Forbidden(path, "more than one provider specified in a single element, should split into different list elements")}
	case p.AESGCM != nil:
		return p.AESGCM.validate(path.Child("aesgcm", "keys"), aesKeySizes)
	case p.AESCBC != nil:
		return p.AESCBC.validate(path.Child("aescbc", "keys"), aesKeySizes)
	case p.Secretbox != nil:
		return p.Secretbox.validate(path.Child("secretbox", "keys"), secretboxKeySizes)
	case p.KMS != nil:
		return p.KMS.validate(path.Child("kms"), plugins)
	}
	return nil
}

func (c *KeysConfiguration) validate(path *field.Path, sizes []int) field.ErrorList {
	if len(c.Keys) == 0 {
		return field.ErrorList{field.Required(path, "at least one keys is required")}
	}
	var errs field.ErrorList
	for i, key := range c.Keys {
		errs = append(errs, key.validate(path.Index(i), sizes)...)
	}
	return errs
}

func (k *Key) validate(path *field.Path, sizes []int) field.ErrorList {
	var errs field.ErrorList
	if k.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "name is a mandatory field for a key"))
	}
	secret, err := base64.StdEncoding.DecodeString(k.Secret)
	switch {
	case k.Secret == "":
		errs = append(errs, field.Required(path.Child("secret"), "secret is a mandatory field for a key"))
	case err != nil:
		errs = append(errs, field.Invalid(path.Child("secret"), "REDACTED", "secrets must be base64 encoded"))
	case !slices.Contains(sizes, len(secret)):
		errs = append(errs, field.Invalid(path.Child("secret"), "REDACTED", fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(secret), sizes)))
	}
	return errs
}

func (c *KMSConfiguration) validate(path *field.Path, plugins sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	name := path.Child("name")
	switch {
	case c.Name == "":
		errs = append(errs, field.Required(name, "name is a mandatory field for a provider"))
	case strings.Contains(c.Name, ":"):
		errs = append(errs, field.Invalid(name, c.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", c.Name)))
	case plugins.Has(c.Name):
		errs = append(errs, field.Invalid(name, c.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", c.Name)))
	}
	plugins.Insert(c.Name)
	if c.timeout() <= 0 {
		errs = append(errs, field.Invalid(path.Child("timeout"), c.timeout().String(), "timeout should be a positive value"))
	}
	if _, err := c.socket(); err != nil {
		errs = append(errs, field.Invalid(path.Child("endpoint"), c.Endpoint, err.Error()))
	}
	if c.CacheSize != nil {
		errs = append(errs, field.Invalid(path.Child("cachesize"), *c.CacheSize, "cachesize is not supported in v2"))
	}
	switch c.APIVersion {
	case "v2":
	case "", "v1": // v1 is upstream's default
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), "v1", []string{"v2"}))
	default:
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), c.APIVersion, []string{"v2"}))
	}
	return errs
}

// socket returns the path of the plugin's socket; @ at its beginning means the
// abstract namespace.
func (c *KMSConfiguration) socket() (string, error) {
	if c.Endpoint == "" {
		return "", fmt.Errorf("endpoint is a mandatory field for a kms")
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return "", fmt.Errorf("invalid endpoint for kms provider, error: %w", err)
	}
	if u.Scheme != "unix" {
		return "", fmt.Errorf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme)
	}
	path := u.Path
	if strings.HasPrefix(path, "/@") {
		path = path[1:]
	}
	if u.Host != "" || len(path) < 2 {
		return "", fmt.Errorf("the endpoint must be unix:// and the absolute path of a socket")
	}
	return path, nil
}
