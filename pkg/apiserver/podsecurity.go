package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/eventratelimit"
	"podium/pkg/apiserver/admission/externalips"
	"podium/pkg/apiserver/admission/podsecurity"
	"podium/pkg/apiserver/registry"
)

// admissionOptions are the flags of what admission plugins read.
type admissionOptions struct {
	configFile  string
	externalIPs []string
}

func (o *admissionOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, "admission-control-config-file", "", "file with an AdmissionConfiguration: what admission plugins read (PodSecurity: defaults and exemptions; EventRateLimit: limits)")
	f.StringSliceVar(&o.externalIPs, "service-external-ip-ranges", nil, "CIDRs that new spec.externalIPs of Services may be in while the plugin DenyServiceExternalIPs is on, never addresses of nodes, pods or Services (default: none)")
}

// externalIPRanges are the ranges of --service-external-ip-ranges.
func (o *admissionOptions) externalIPRanges() ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	var errs []error
	for _, text := range o.externalIPs {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--service-external-ip-ranges: %w", err))
		}
		ranges = append(ranges, r)
	}
	return ranges, errors.Join(errs...)
}

// admissionConfig is what the plugins that read one are configured with.
type admissionConfig struct {
	podSecurity podsecurity.Config
	eventLimits eventratelimit.Config
}

// load reads the plugins' configurations: those of the file, if there is one.
func (o *admissionOptions) load() (admissionConfig, error) {
	c := admissionConfig{eventLimits: eventratelimit.Default()}
	if o.configFile == "" {
		return c, nil
	}
	plugins, err := admission.LoadConfig(o.configFile)
	if err != nil {
		return c, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	for name, data := range plugins {
		switch registry.Plugin(name) {
		case registry.PodSecurity:
			c.podSecurity, err = podsecurity.ParseConfig(data)
		case registry.EventRateLimit:
			c.eventLimits, err = eventratelimit.ParseConfig(data)
		default:
			err = fmt.Errorf("plugin %q reads no configuration", name)
		}
		if err != nil {
			return c, fmt.Errorf("--admission-control-config-file: %w", err)
		}
	}
	return c, nil
}

// admission is the chain with the rules that need this server's objects.
func (s *Server) admission() admission.Chain {
	chain := s.restricted(s.cfg.Admission)
	if !s.cfg.Disabled.Has(registry.DenyServiceExternalIPs) {
		chain.Validate = append(slices.Clone(chain.Validate), externalips.New(externalips.Config{
			Allowed: s.cfg.ExternalIPRanges, Services: s.cfg.ServiceCIDR, Server: s.cfg.Advertise.Addr(), Objects: objects{s},
		}))
	}
	if !s.cfg.Disabled.Has(registry.EventRateLimit) {
		chain.Validate = append(slices.Clone(chain.Validate), eventratelimit.New(s.cfg.EventLimits, s.cfg.Now))
	}
	if s.cfg.Disabled.Has(registry.PodSecurity) {
		return chain
	}
	// The API that the rule asks is made with the rule: it is there once requests come.
	cluster := podsecurity.Cluster{
		Namespace: func(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error) {
			return s.api.Namespace(ctx, name, fresh)
		},
		Pods: func(ctx context.Context, namespace string) ([]*corev1.Pod, error) { return s.api.Pods(ctx, namespace) },
	}
	rule := podsecurity.New(s.cfg.PodSecurity, cluster, podsecurity.NewMetrics(s.cfg.Registry))
	chain.Validate = append(slices.Clone(chain.Validate), rule.Validate)
	return chain
}
