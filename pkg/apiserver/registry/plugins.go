package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Plugin is a rule of admission that an operator may switch off, under
// upstream's name.
type Plugin string

// The plugins. All are on unless switched off.
const (
	NamespaceLifecycle       Plugin = "NamespaceLifecycle"
	ServiceAccount           Plugin = "ServiceAccount"
	DefaultTolerationSeconds Plugin = "DefaultTolerationSeconds"
	Priority                 Plugin = "Priority"
	TaintNodesByCondition    Plugin = "TaintNodesByCondition"
	PodSecurity              Plugin = "PodSecurity"
	EventRateLimit           Plugin = "EventRateLimit"

	NodeRestriction               Plugin = "NodeRestriction"
	CertificateApproval           Plugin = "CertificateApproval"
	CertificateSigning            Plugin = "CertificateSigning"
	CertificateSubjectRestriction Plugin = "CertificateSubjectRestriction"
)

func plugins() []Plugin {
	return []Plugin{
		NamespaceLifecycle, ServiceAccount, DefaultTolerationSeconds, Priority,
		TaintNodesByCondition,
		PodSecurity, EventRateLimit,
		NodeRestriction, CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
	}
}

// PluginSet is some of the plugins.
type PluginSet []Plugin

// Has says whether p is one of them.
func (s PluginSet) Has(p Plugin) bool { return slices.Contains(s, p) }

// DisabledPlugins are those that disable names. A name in either list that is
// no plugin here is an error, and so is one in both.
func DisabledPlugins(enable, disable []string) (PluginSet, error) {
	var errs []error
	check := func(flag string, names []string) {
		for _, name := range names {
			if !slices.Contains(plugins(), Plugin(name)) {
				errs = append(errs, fmt.Errorf("%s plugin %q is unknown; known: %s", flag, name, knownPlugins()))
			}
		}
	}
	check("enable-admission-plugins", enable)
	check("disable-admission-plugins", disable)
	var off PluginSet
	for _, name := range disable {
		if slices.Contains(enable, name) {
			errs = append(errs, fmt.Errorf("[%s] in enable-admission-plugins and disable-admission-plugins overlapped", name))
		}
		off = append(off, Plugin(name))
	}
	return off, errors.Join(errs...)
}

func knownPlugins() string {
	var names []string
	for _, p := range plugins() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}
