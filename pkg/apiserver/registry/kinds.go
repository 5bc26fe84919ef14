package registry

import (
	"fmt"
	"maps"

	"podium/pkg/deviceselector"
	"podium/pkg/expression"
	"podium/pkg/scheme"
)

// Kinds returns all served kinds in discovery order. It panics if a kind of the
// scheme has no entry in the table below.
func Kinds(s *scheme.Scheme, cfg Config) []*Kind {
	cfg.ranges = newServiceRanges(cfg.ServiceCIDR)
	makers := map[string]func(*scheme.Kind, Config) *Kind{
		"componentstatuses":      componentStatuses,
		"configmaps":             configMaps,
		"endpoints":              endpoints,
		"events":                 events,
		"limitranges":            limitRanges,
		"namespaces":             namespaces,
		"nodes":                  nodes,
		"persistentvolumeclaims": persistentVolumeClaims,
		"persistentvolumes":      persistentVolumes,
		"pods":                   pods,
		"podtemplates":           podTemplates,
		"replicationcontrollers": replicationControllers,
		"resourcequotas":         resourceQuotas,
		"secrets":                secrets,
		"serviceaccounts":        serviceAccounts,
		"services":               func(k *scheme.Kind, cfg Config) *Kind { return services(k, s, cfg) },

		"controllerrevisions.apps": controllerRevisions,
		"daemonsets.apps":          daemonSets,
		"deployments.apps":         deployments,
		"replicasets.apps":         replicaSets,
		"statefulsets.apps":        statefulSets,

		"horizontalpodautoscalers.autoscaling": horizontalPodAutoscalers,

		"cronjobs.batch": cronJobs,
		"jobs.batch":     jobs,

		"selfsubjectreviews.authentication.k8s.io":       selfSubjectReviews,
		"localsubjectaccessreviews.authorization.k8s.io": localSubjectAccessReviews,
		"selfsubjectaccessreviews.authorization.k8s.io":  selfSubjectAccessReviews,
		"selfsubjectrulesreviews.authorization.k8s.io":   selfSubjectRulesReviews,
		"subjectaccessreviews.authorization.k8s.io":      subjectAccessReviews,
		"tokenreviews.authentication.k8s.io":             tokenReviews,

		"customresourcedefinitions.apiextensions.k8s.io": customResourceDefinitions,

		"endpointslices.discovery.k8s.io": endpointSlices,
		"leases.coordination.k8s.io":      leases,

		"apiservices.apiregistration.k8s.io":             apiServices,
		"certificatesigningrequests.certificates.k8s.io": certificateSigningRequests,
		"podcertificaterequests.certificates.k8s.io":     podCertificateRequests,
		"poddisruptionbudgets.policy":                    podDisruptionBudgets,
		"clusterrolebindings.rbac.authorization.k8s.io":  clusterRoleBindings,
		"clusterroles.rbac.authorization.k8s.io":         clusterRoles,
		"rolebindings.rbac.authorization.k8s.io":         roleBindings,
		"roles.rbac.authorization.k8s.io":                namespacedRoles,

		"flowschemas.flowcontrol.apiserver.k8s.io":                 flowSchemas,
		"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": priorityLevels,

		"ingressclasses.networking.k8s.io":  ingressClasses,
		"ingresses.networking.k8s.io":       ingresses,
		"ipaddresses.networking.k8s.io":     ipAddresses,
		"networkpolicies.networking.k8s.io": networkPolicies,
		"servicecidrs.networking.k8s.io":    serviceCIDRs,

		"devicetaintrules.resource.k8s.io": deviceTaintRules,
		"resourceslices.resource.k8s.io":   resourceSlices,

		"priorityclasses.scheduling.k8s.io": priorityClasses,
		"runtimeclasses.node.k8s.io":        runtimeClasses,

		"csidrivers.storage.k8s.io":              csiDrivers,
		"csinodes.storage.k8s.io":                csiNodes,
		"csistoragecapacities.storage.k8s.io":    csiStorageCapacities,
		"storageclasses.storage.k8s.io":          storageClasses,
		"volumeattachments.storage.k8s.io":       volumeAttachments,
		"volumeattributesclasses.storage.k8s.io": volumeAttributesClasses,

		"storageversionmigrations.storagemigration.k8s.io": storageVersionMigrations,
	}
	maps.Copy(makers, admissionKinds(s, cfg))
	maps.Copy(makers, claimKinds())
	var kinds []*Kind
	for _, k := range s.Kinds() {
		maker := makers[k.GVR().GroupResource().String()]
		if maker == nil {
			panic(fmt.Sprintf("registry: nothing is known of %v", k.GVR()))
		}
		kind := maker(k, cfg)
		checkFinalizers(kind)
		kinds = append(kinds, kind)
	}
	return kinds
}

// admissionKinds returns the makers of the kinds that configure admission, which
// share the compiler of their expressions.
func admissionKinds(s *scheme.Scheme, cfg Config) map[string]func(*scheme.Kind, Config) *Kind {
	compiler, readers := expression.NewCompiler(), &paramReaders{s, cfg.Access}
	makers := map[string]func(*scheme.Kind, Config) *Kind{}
	for resource, maker := range map[string]func(*scheme.Kind) *Kind{
		"mutatingadmissionpolicies":         func(k *scheme.Kind) *Kind { return mutatingAdmissionPolicies(k, readers, compiler) },
		"mutatingadmissionpolicybindings":   func(k *scheme.Kind) *Kind { return mutatingAdmissionPolicyBindings(k, readers) },
		"mutatingwebhookconfigurations":     func(k *scheme.Kind) *Kind { return mutatingWebhookConfigurations(k, compiler) },
		"validatingadmissionpolicies":       func(k *scheme.Kind) *Kind { return validatingAdmissionPolicies(k, readers, compiler) },
		"validatingadmissionpolicybindings": func(k *scheme.Kind) *Kind { return validatingAdmissionPolicyBindings(k, readers) },
		"validatingwebhookconfigurations":   func(k *scheme.Kind) *Kind { return validatingWebhookConfigurations(k, compiler) },
	} {
		makers[resource+".admissionregistration.k8s.io"] = func(k *scheme.Kind, _ Config) *Kind { return maker(k) }
	}
	return makers
}

// claimKinds returns the makers of the kinds that select devices by expressions, which share
// the compiler.
func claimKinds() map[string]func(*scheme.Kind, Config) *Kind {
	checks := deviceChecks{deviceselector.NewCompiler()}
	return map[string]func(*scheme.Kind, Config) *Kind{
		"deviceclasses.resource.k8s.io":          func(k *scheme.Kind, _ Config) *Kind { return deviceClasses(k, checks) },
		"resourceclaims.resource.k8s.io":         func(k *scheme.Kind, _ Config) *Kind { return resourceClaims(k, checks) },
		"resourceclaimtemplates.resource.k8s.io": func(k *scheme.Kind, _ Config) *Kind { return resourceClaimTemplates(k, checks) },
	}
}
