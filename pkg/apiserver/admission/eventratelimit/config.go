package eventratelimit

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// LimitType selects which Events share a token bucket.
type LimitType string

// The limit types, as upstream has them.
const (
	Server          LimitType = "Server"
	Namespace       LimitType = "Namespace"
	User            LimitType = "User"
	SourceAndObject LimitType = "SourceAndObject"
)

// Limit limits Events by one token bucket for each key of its type.
type Limit struct {
	Type      LimitType `json:"type"`
	QPS       int32     `json:"qps"`   // the sustained rate, in events per second
	Burst     int32     `json:"burst"` // the size of the bucket
	CacheSize int32     `json:"cacheSize,omitempty"`
}

// Config is a list of limits. An Event must be within all of them.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []Limit `json:"limits"`
}

const (
	apiVersion       = "eventratelimit.admission.k8s.io/v1alpha1"
	defaultCacheSize = 4096
)

// Default returns a limit that admits the Events of a thousand pods starting in
// one namespace, and stops a flood.
func Default() Config {
	return Config{Limits: []Limit{{Type: Namespace, QPS: 100, Burst: 5000, CacheSize: defaultCacheSize}}}
}

// ParseConfig parses a Configuration of
// eventratelimit.admission.k8s.io/v1alpha1. Its error names everything that is
// invalid.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return c, fmt.Errorf("read EventRateLimit configuration: %w", err)
	}
	if c.Kind != "Configuration" || c.APIVersion != apiVersion {
		return c, fmt.Errorf("expected kind Configuration of %s, found kind %q of %q", apiVersion, c.Kind, c.APIVersion)
	}
	var errs []error
	if len(c.Limits) == 0 {
		errs = append(errs, errors.New("limits: Invalid value: must not be empty"))
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		switch l.Type {
		case Server, Namespace, User, SourceAndObject:
		default:
			errs = append(errs, fmt.Errorf("limits[%d].type: Unsupported value: %q: supported values: %q, %q, %q, %q", i, l.Type, Namespace, Server, SourceAndObject, User))
		}
		if l.QPS <= 0 {
			errs = append(errs, fmt.Errorf("limits[%d].qps: Invalid value: %d: must be positive", i, l.QPS))
		}
		if l.Burst <= 0 {
			errs = append(errs, fmt.Errorf("limits[%d].burst: Invalid value: %d: must be positive", i, l.Burst))
		}
		if l.CacheSize < 0 {
			errs = append(errs, fmt.Errorf("limits[%d].cacheSize: Invalid value: %d: must not be negative", i, l.CacheSize))
		}
		if l.CacheSize == 0 {
			l.CacheSize = defaultCacheSize
		}
	}
	return c, errors.Join(errs...)
}
