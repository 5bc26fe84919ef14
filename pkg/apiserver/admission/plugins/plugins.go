// Package plugins lists all admission plugins, in the order in which they run,
// and configures them.
package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/alwayspullimages"
	"podium/pkg/apiserver/admission/certificates"
	"podium/pkg/apiserver/admission/claimresize"
	"podium/pkg/apiserver/admission/claimstatus"
	"podium/pkg/apiserver/admission/defaultclass"
	"podium/pkg/apiserver/admission/defaulttolerations"
	"podium/pkg/apiserver/admission/deviceadmin"
	"podium/pkg/apiserver/admission/eventratelimit"
	"podium/pkg/apiserver/admission/extendedresources"
	"podium/pkg/apiserver/admission/externalips"
	"podium/pkg/apiserver/admission/lifecycle"
	"podium/pkg/apiserver/admission/limitranger"
	"podium/pkg/apiserver/admission/noderestriction"
	"podium/pkg/apiserver/admission/nodetaint"
	"podium/pkg/apiserver/admission/podsecurity"
	"podium/pkg/apiserver/admission/policies"
	"podium/pkg/apiserver/admission/priority"
	"podium/pkg/apiserver/admission/resourcequota"
	"podium/pkg/apiserver/admission/runtimeclass"
	"podium/pkg/apiserver/admission/serviceaccount"
	"podium/pkg/apiserver/admission/storageprotection"
	"podium/pkg/apiserver/admission/webhooks"
)

// entry is a plugin in the list.
type entry struct {
	name string
	new  func(admission.Host) admission.Plugin
	off  bool // off by default
}

// ordered returns all plugins in upstream's order.
func (c *Config) ordered() []entry {
	return []entry{
		{name: "NamespaceLifecycle", new: lifecycle.New},
		{name: "LimitRanger", new: limitranger.New},
		{name: "ServiceAccount", new: serviceaccount.New},
		{name: "NodeRestriction", new: noderestriction.New},
		{name: "TaintNodesByCondition", new: nodetaint.New},
		{name: "AlwaysPullImages", new: alwayspullimages.New, off: true},
		{name: "PodSecurity", new: func(h admission.Host) admission.Plugin { return podsecurity.New(h, c.PodSecurity) }},
		{name: "Priority", new: priority.New},
		{name: "DefaultTolerationSeconds", new: defaulttolerations.New},
		{name: "EventRateLimit", new: func(h admission.Host) admission.Plugin { return eventratelimit.New(h, c.EventLimits) }},
		{name: "ExtendedResourceToleration", new: extendedresources.New, off: true},
		{name: "DefaultStorageClass", new: defaultclass.Storage},
		{name: "StorageObjectInUseProtection", new: storageprotection.New},
		{name: "PersistentVolumeClaimResize", new: claimresize.New},
		{name: "RuntimeClass", new: runtimeclass.New},
		{name: "CertificateApproval", new: certificates.Approval},
		{name: "CertificateSigning", new: certificates.Signing},
		{name: "CertificateSubjectRestriction", new: certificates.SubjectRestriction},
		{name: "DefaultIngressClass", new: defaultclass.Ingress},
		{name: "DenyServiceExternalIPs", new: func(h admission.Host) admission.Plugin { return externalips.New(h, c.ExternalIPRanges) }},
		{name: "MutatingAdmissionPolicy", new: policies.NewMutating},
		{name: "MutatingAdmissionWebhook", new: func(h admission.Host) admission.Plugin { return webhooks.NewMutating(h, c.Webhooks) }},
		{name: "ValidatingAdmissionPolicy", new: policies.NewValidating},
		{name: "ValidatingAdmissionWebhook", new: func(h admission.Host) admission.Plugin { return webhooks.NewValidating(h, c.Webhooks) }},
		{name: "ResourceQuota", new: func(h admission.Host) admission.Plugin { return resourcequota.New(h, c.Quotas) }},
	}
}

// missing returns upstream's plugins that are not implemented. Disabling one
// has no effect; enabling one is an error.
func missing() []string {
	return []string{
		"AlwaysAdmit", "AlwaysDeny", "ClusterTrustBundleAttest",
		"ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology",
		"NamespaceAutoProvision", "NamespaceExists", "NodeDeclaredFeatureValidator",
		"OwnerReferencesPermissionEnforcement", "PodGroupProtection", "PodNodeSelector",
		"PodResizeValidator", "PodTolerationRestriction", "PodTopologyLabels",
	}
}

// Chain returns the enabled plugins for a server, in order. c must be valid.
func (c *Config) Chain(h admission.Host) admission.Chain {
	h.Series = admission.NewSeries(h.Metrics)
	chain := admission.Chain{deviceadmin.New(h), claimstatus.New(h)}
	for _, e := range c.ordered() {
		if slices.Contains(c.Disable, e.name) || e.off && !slices.Contains(c.Enable, e.name) {
			continue
		}
		p := e.new(h)
		p.Name = e.name
		chain = append(chain, p)
	}
	return append(chain, c.Extra...)
}

// Validate validates the names in Enable and Disable: they must be plugins of
// upstream, those in Enable must be implemented, and a name may not be in both.
func (c *Config) Validate() error {
	var known []string
	for _, e := range c.ordered() {
		known = append(known, e.name)
	}
	var errs []error
	check := func(flag string, names, also []string) {
		for _, name := range names {
			what := "is unknown"
			switch {
			case slices.Contains(known, name) || slices.Contains(also, name):
				continue
			case slices.Contains(missing(), name):
				what = "of upstream does not exist in Podium"
			}
			errs = append(errs, fmt.Errorf("%s plugin %q %s; known: %s", flag, name, what, strings.Join(known, ", ")))
		}
	}
	check("enable-admission-plugins", c.Enable, nil)
	check("disable-admission-plugins", c.Disable, missing())
	for _, name := range c.Disable {
		if slices.Contains(c.Enable, name) {
			errs = append(errs, fmt.Errorf("[%s] in enable-admission-plugins and disable-admission-plugins overlapped", name))
		}
	}
	return errors.Join(errs...)
}
