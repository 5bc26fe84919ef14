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
	DenyServiceExternalIPs   Plugin = "DenyServiceExternalIPs"
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
		PodSecurity, DenyServiceExternalIPs, EventRateLimit,
		NodeRestriction, CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
	}
}

// PluginSet is some of the plugins.
type PluginSet []Plugin

// Has says whether p is one of them.
func (s PluginSet) Has(p Plugin) bool { return slices.Contains(s, p) }

// missingPlugins are upstream's plugins that do not exist here: to disable one
// changes nothing, to enable one is refused.
func missingPlugins() []string {
	return []string{
		"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass",
		"EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger",
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", "NodeDeclaredFeatureValidator",
		"OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "PodNodeSelector", "PodTolerationRestriction",
		"PodTopologyLabels", "ResourceQuota", "RuntimeClass", "StorageObjectInUseProtection", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
	}
}

// DisabledPlugins returns the plugins that disable names. A name in either list
// that is no plugin of upstream's is an error, and so is one in both lists and
// one in enable that does not exist here.
func DisabledPlugins(enable, disable []string) (PluginSet, error) {
	var errs []error
	check := func(flag string, names, also []string) {
		for _, name := range names {
			switch {
			case slices.Contains(plugins(), Plugin(name)) || slices.Contains(also, name):
			case slices.Contains(missingPlugins(), name):
				errs = append(errs, fmt.Errorf("%s plugin %q of upstream does not exist in Podium; known: %s", flag, name, knownPlugins()))
			default:
				errs = append(errs, fmt.Errorf("%s plugin %q is unknown; known: %s", flag, name, knownPlugins()))
			}
		}
	}
	check("enable-admission-plugins", enable, nil)
	check("disable-admission-plugins", disable, missingPlugins())
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
