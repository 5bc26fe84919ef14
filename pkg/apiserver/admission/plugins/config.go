package plugins

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/eventratelimit"
	"podium/pkg/apiserver/admission/podsecurity"
	"podium/pkg/apiserver/admission/resourcequota"
	"podium/pkg/apiserver/admission/webhooks"
)

// Config selects and configures the plugins. The zero Config runs the plugins
// that are on by default; Pod Security then follows only the namespaces'
// labels, Events are not limited, and nothing needs a quota.
type Config struct {
	Enable  []string // plugins that are off by default
	Disable []string

	PodSecurity podsecurity.Config
	EventLimits eventratelimit.Config
	Quotas      resourcequota.Config

	// ExternalIPRanges are the ranges that DenyServiceExternalIPs allows for
	// new spec.externalIPs of Services; empty: none.
	ExternalIPRanges []netip.Prefix

	Webhooks webhooks.Config

	Extra admission.Chain // plugins that run after all others
}

// Flags are the command-line form of a Config.
type Flags struct {
	configFile  string
	externalIPs []string
}

// Add adds the flags to f and binds them to c.
func (o *Flags) Add(f *pflag.FlagSet, c *Config) {
	f.StringSliceVar(&c.Enable, "enable-admission-plugins", nil, "admission plugins to enable besides those that are on by default")
	f.StringSliceVar(&c.Disable, "disable-admission-plugins", nil, "admission plugins to disable")
	f.StringVar(&o.configFile, "admission-control-config-file", "", "file with an AdmissionConfiguration: what admission plugins read (PodSecurity: defaults and exemptions; EventRateLimit: limits; ResourceQuota: what needs a quota)")
	f.StringSliceVar(&o.externalIPs, "service-external-ip-ranges", nil, "CIDRs that new spec.externalIPs of Services may be in while the plugin DenyServiceExternalIPs is on, never addresses of nodes, pods or Services (default: none)")
}

// Complete fills c from the flags and the files that they name, and validates
// it. Its error names everything that is invalid.
func (o *Flags) Complete(c *Config) error {
	c.EventLimits = eventratelimit.Default()
	errs := []error{c.Validate(), o.load(c)}
	for _, text := range o.externalIPs {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--service-external-ip-ranges: %w", err))
		}
		c.ExternalIPRanges = append(c.ExternalIPRanges, r)
	}
	return errors.Join(errs...)
}

// load reads the plugins' configurations from the file, if one is given.
func (o *Flags) load(c *Config) error {
	if o.configFile == "" {
		return nil
	}
	files, err := admission.LoadConfig(o.configFile)
	for name, data := range files {
		var bad error
		switch name {
		case "PodSecurity":
			c.PodSecurity, bad = podsecurity.ParseConfig(data)
		case "EventRateLimit":
			c.EventLimits, bad = eventratelimit.ParseConfig(data)
		case "ResourceQuota":
			c.Quotas, bad = resourcequota.ParseConfig(data)
		default:
			bad = fmt.Errorf("plugin %q reads no configuration", name)
		}
		err = errors.Join(err, bad)
	}
	if err != nil {
		return fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return nil
}
