package extender

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Config is an element of the list extenders of upstream's KubeSchedulerConfiguration.
type Config struct {
	URLPrefix        string            `json:"urlPrefix"`
	FilterVerb       string            `json:"filterVerb,omitempty"` // empty verbs are not supported by the extender
	PreemptVerb      string            `json:"preemptVerb,omitempty"`
	PrioritizeVerb   string            `json:"prioritizeVerb,omitempty"`
	BindVerb         string            `json:"bindVerb,omitempty"`
	Weight           int64             `json:"weight,omitempty"`      // of the scores; positive if there is a prioritizeVerb
	EnableHTTPS      bool              `json:"enableHTTPS,omitempty"` // urlPrefix must begin with https://
	TLSConfig        *TLSConfig        `json:"tlsConfig,omitempty"`
	HTTPTimeout      metav1.Duration   `json:"httpTimeout,omitempty"`      // of each request; default 5 s
	NodeCacheCapable bool              `json:"nodeCacheCapable,omitempty"` // nodes and victims are sent by name and UID only
	ManagedResources []ManagedResource `json:"managedResources,omitempty"` // default: the extender is asked about all pods
	Ignorable        bool              `json:"ignorable,omitempty"`        // pods are scheduled without it while it fails
}

// ManagedResource is a resource that an extender manages: it is asked about the pods that
// request or limit one of them.
type ManagedResource struct {
	Name               string `json:"name"`
	IgnoredByScheduler bool   `json:"ignoredByScheduler,omitempty"` // NodeResourcesFit does not look at it
}

// TLSConfig says how to connect to an extender by HTTPS. Data takes precedence over a file.
type TLSConfig struct {
	Insecure   bool   `json:"insecure,omitempty"` // do not verify the certificate
	ServerName string `json:"serverName,omitempty"`
	CertFile   string `json:"certFile,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
	CAFile     string `json:"caFile,omitempty"` // default: the system's authorities
	CertData   []byte `json:"certData,omitempty"`
	KeyData    []byte `json:"keyData,omitempty"`
	CAData     []byte `json:"caData,omitempty"`
}

const (
	defaultTimeout = 5 * time.Second

	// maxWeight and maxScore keep sums of scores far from an overflow.
	maxWeight = 1_000_000
	maxScore  = 1_000_000
)

// Validate returns all errors of a list of extenders, with their fields.
func Validate(list []Config) error {
	var errs []error
	binders := 0
	managed := map[string]int{}
	for i := range list {
		c := &list[i]
		fail := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("extenders[%d].%s: %s", i, field, fmt.Sprintf(format, args...)))
		}
		c.validate(fail)
		for j, r := range c.ManagedResources {
			field := fmt.Sprintf("managedResources[%d].name", j)
			if other, twice := managed[r.Name]; twice {
				fail(field, "extenders[%d] manages %s, too", other, r.Name)
			}
			managed[r.Name] = i
			if why := validation.IsQualifiedName(r.Name); len(why) > 0 || !strings.Contains(r.Name, "/") || strings.HasSuffix(strings.Split(r.Name, "/")[0], "kubernetes.io") {
				fail(field, "%q is not the name of an extended resource", r.Name)
			}
		}
		if c.BindVerb == "" {
			continue
		}
		if binders++; binders > 1 {
			fail("bindVerb", "only one extender can bind pods")
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validate(fail func(field, format string, args ...any)) {
	u, err := url.Parse(c.URLPrefix)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		fail("urlPrefix", "%q is not an HTTP or HTTPS URL without a query", c.URLPrefix)
	case c.EnableHTTPS && u.Scheme != "https":
		fail("enableHTTPS", "urlPrefix %s is not an HTTPS URL", c.URLPrefix)
	case c.TLSConfig != nil && u.Scheme != "https":
		fail("tlsConfig", "urlPrefix %s is not an HTTPS URL", c.URLPrefix)
	}
	if c.PrioritizeVerb != "" && c.Weight <= 0 || c.Weight < 0 || c.Weight > maxWeight {
		fail("weight", "%d: an extender with a prioritizeVerb needs a weight of 1 to %d", c.Weight, maxWeight)
	}
	if c.HTTPTimeout.Duration < 0 {
		fail("httpTimeout", "%s is negative", c.HTTPTimeout.Duration)
	}
	if t := c.TLSConfig; t != nil {
		if _, err := t.load(); err != nil {
			fail("tlsConfig", "%v", err)
		}
	}
}

// IgnoredResources returns the managed resources that NodeResourcesFit does not look at.
func IgnoredResources(list []Config) (names []string) {
	for _, c := range list {
		for _, r := range c.ManagedResources {
			if r.IgnoredByScheduler {
				names = append(names, r.Name)
			}
		}
	}
	return names
}
