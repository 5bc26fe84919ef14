package resourcequota

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/quota"
)

// LimitedResource is a resource whose consumption is refused unless a quota covers it.
type LimitedResource struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Resource string `json:"resource"`

	// MatchContains selects resources of quotas that contain one of these texts, such
	// as requests.storage; MatchScopes selects objects in one of these scopes.
	MatchContains []string                                   `json:"matchContains,omitempty"`
	MatchScopes   []corev1.ScopedResourceSelectorRequirement `json:"matchScopes,omitempty"`
}

// Config lists the resources that are limited where there is no quota. The zero Config
// limits none.
type Config struct {
	metav1.TypeMeta  `json:",inline"`
	LimitedResources []LimitedResource `json:"limitedResources"`
}

// ParseConfig parses a ResourceQuotaConfiguration. Its error names everything that is
// invalid.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return c, fmt.Errorf("read ResourceQuota configuration: %w", err)
	}
	switch c.APIVersion {
	case "apiserver.config.k8s.io/v1", "resourcequota.admission.k8s.io/v1beta1", "resourcequota.admission.k8s.io/v1alpha1":
	default:
		return c, fmt.Errorf("expected apiserver.config.k8s.io/v1, found kind %q of %q", c.Kind, c.APIVersion)
	}
	if c.Kind != "ResourceQuotaConfiguration" && (c.Kind != "Configuration" || c.APIVersion == "apiserver.config.k8s.io/v1") {
		return c, fmt.Errorf("expected kind ResourceQuotaConfiguration, found kind %q of %q", c.Kind, c.APIVersion)
	}
	var errs []error
	for i, l := range c.LimitedResources {
		if l.Resource == "" {
			errs = append(errs, fmt.Errorf("limitedResources[%d].resource: Required value", i))
		}
		for j, s := range l.MatchScopes {
			if !quota.KnownScope(s.ScopeName) {
				errs = append(errs, fmt.Errorf("limitedResources[%d].matchScopes[%d].scopeName: Invalid value: %q: unsupported scope", i, j, s.ScopeName))
			}
		}
	}
	return c, errors.Join(errs...)
}
