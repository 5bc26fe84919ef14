// Package defaults holds the FlowSchemas and PriorityLevelConfigurations that every
// cluster has, and says how the server maintains the stored ones.
package defaults

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The groups and users of upstream's default FlowSchemas.
const (
	masters           = "system:masters"
	nodes             = "system:nodes"
	accounts          = "system:serviceaccounts"
	authenticated     = "system:authenticated"
	unauthenticated   = "system:unauthenticated"
	controllerManager = "system:kube-controller-manager"
	scheduler         = "system:kube-scheduler"
)

// Levels returns upstream's PriorityLevelConfigurations, the mandatory ones first.
// The caller owns them.
func Levels() []*flowcontrolv1.PriorityLevelConfiguration {
	catchAll := limited(flowcontrolv1.PriorityLevelConfigurationNameCatchAll, 5, 0, nil)
	catchAll.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeReject
	return []*flowcontrolv1.PriorityLevelConfiguration{
		{
			ObjectMeta: meta(flowcontrolv1.PriorityLevelConfigurationNameExempt),
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type:   flowcontrolv1.PriorityLevelEnablementExempt,
				Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: new(int32), LendablePercent: new(int32)},
			},
		},
		catchAll,
		limited("system", 30, 33, queues(64, 6)),
		limited("node-high", 40, 25, queues(64, 6)),
		limited("leader-election", 10, 0, queues(16, 4)),
		limited("workload-high", 40, 50, queues(128, 6)),
		limited("workload-low", 100, 90, queues(128, 6)),
		limited("global-default", 20, 50, queues(128, 6)),
	}
}

// Schemas returns upstream's FlowSchemas, the mandatory ones first. The caller owns
// them.
func Schemas() []*flowcontrolv1.FlowSchema {
	byUser, byNamespace := flowcontrolv1.FlowDistinguisherMethodByUserType, flowcontrolv1.FlowDistinguisherMethodByNamespaceType
	kubeSystem := flowcontrolv1.Subject{
		Kind:           flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: metav1.NamespaceSystem, Name: flowcontrolv1.NameAll},
	}
	everybody := []flowcontrolv1.Subject{group(unauthenticated), group(authenticated)}
	leases := []string{"leases"}
	return []*flowcontrolv1.FlowSchema{
		schema("exempt", "exempt", 1, "", everything(group(masters))),
		schema("catch-all", "catch-all", 10000, byUser, everything(everybody...)),
		schema("probes", "exempt", 2, "", flowcontrolv1.PolicyRulesWithSubjects{
			Subjects:         everybody,
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}}},
		}),
		schema("system-leader-election", "leader-election", 100, byUser, resources(
			[]flowcontrolv1.Subject{user(controllerManager), user(scheduler), kubeSystem},
			rule([]string{"get", "create", "update"}, coordinationv1.GroupName, leases, false))),
		schema("system-node-high", "node-high", 400, byUser, resources([]flowcontrolv1.Subject{group(nodes)},
			rule(all(), "", []string{"nodes", "nodes/status"}, true),
			rule(all(), coordinationv1.GroupName, leases, false))),
		schema("system-nodes", "system", 500, byUser, everything(group(nodes))),
		schema("kube-controller-manager", "workload-high", 800, byNamespace, everything(user(controllerManager))),
		schema("kube-scheduler", "workload-high", 800, byNamespace, everything(user(scheduler))),
		schema("kube-system-service-accounts", "workload-high", 900, byNamespace, everything(kubeSystem)),
		schema("service-accounts", "workload-low", 9000, byUser, everything(group(accounts))),
		schema("global-default", "global-default", 9900, byUser, everything(everybody...)),
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}
}

func limited(name string, shares, lendable int32, q *flowcontrolv1.QueuingConfiguration) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: meta(name),
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares, LendablePercent: &lendable,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: q},
			},
		},
	}
}

func queues(n, hand int32) *flowcontrolv1.QueuingConfiguration {
	return &flowcontrolv1.QueuingConfiguration{Queues: n, HandSize: hand, QueueLengthLimit: 50}
}

func schema(name, level string, precedence int32, by flowcontrolv1.FlowDistinguisherMethodType, r flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	s := &flowcontrolv1.FlowSchema{ObjectMeta: meta(name), Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
		MatchingPrecedence:         precedence,
		Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{r},
	}}
	if by != "" {
		s.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: by}
	}
	return s
}

func all() []string { return []string{flowcontrolv1.VerbAll} }

func everything(subjects ...flowcontrolv1.Subject) flowcontrolv1.PolicyRulesWithSubjects {
	return flowcontrolv1.PolicyRulesWithSubjects{
		Subjects:         subjects,
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{rule(all(), flowcontrolv1.APIGroupAll, all(), true)},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all(), NonResourceURLs: all()}},
	}
}

func resources(subjects []flowcontrolv1.Subject, rules ...flowcontrolv1.ResourcePolicyRule) flowcontrolv1.PolicyRulesWithSubjects {
	return flowcontrolv1.PolicyRulesWithSubjects{Subjects: subjects, ResourceRules: rules}
}

func rule(verbs []string, group string, resources []string, clusterScope bool) flowcontrolv1.ResourcePolicyRule {
	return flowcontrolv1.ResourcePolicyRule{
		Verbs: verbs, APIGroups: []string{group}, Resources: resources, ClusterScope: clusterScope,
		Namespaces: []string{flowcontrolv1.NamespaceEvery},
	}
}

func group(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
}

func user(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
}
