package node

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/rbac"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/upgradelock"
)

// Authorizer decides on kubelets' requests.
type Authorizer struct {
	graph *Graph
	rules *rbac.Rules
}

// New is an authorizer that knows the pods of a graph. The rules are what a
// kubelet may do at all.
func New(graph *Graph, rules *rbac.Rules) *Authorizer { return &Authorizer{graph, rules} }

// Name is the node that a user is the kubelet of, "" if it is none.
func Name(user *request.User) string {
	name, ok := strings.CutPrefix(user.Name, request.NodePrefix)
	if !ok || !user.In(request.Nodes) {
		return ""
	}
	return name
}

// Authorize has an opinion on kubelets only, and allows what the rules allow
// to the objects that concern the node.
func (a *Authorizer) Authorize(_ context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
	node := Name(user)
	if node == "" {
		return authz.NoOpinion, ""
	}
	if !a.rules.Allow(info) {
		return authz.NoOpinion, ""
	}
	if reason := a.foreign(node, info); reason != "" {
		return authz.NoOpinion, reason
	}
	return authz.Allow, ""
}

// foreign says why an object does not concern a node, "" if it does.
func (a *Authorizer) foreign(node string, info *request.Info) string {
	switch info.Resource {
	case "secrets", "configmaps", "serviceaccounts":
		return a.unrelated(node, info)
	case "nodes":
		return foreignNode(node, info)
	case "pods":
		return a.foreignPod(node, info)
	case "leases":
		return foreignLease(node, info)
	}
	return ""
}

// unrelated: a pod of the node must refer to the object.
func (a *Authorizer) unrelated(node string, info *request.Info) string {
	if info.Namespace == "" || info.Name == "" || !a.graph.needed(node, ref{info.Resource, info.Namespace, info.Name}) {
		return fmt.Sprintf("no relationship found between node '%s' and this object", node)
	}
	return ""
}

// foreignNode: a node reads and changes only itself. What it is created as is
// for NodeRestriction to check, which sees the object.
func foreignNode(node string, info *request.Info) string {
	if info.Verb != "create" && info.Name != node {
		return fmt.Sprintf("node '%s' cannot %s '%s', only its own Node object", node, info.Verb, info.Name)
	}
	return ""
}

// foreignPod: a node lists and watches the pods bound to it. Of a single pod
// that is gone it may be told so.
func (a *Authorizer) foreignPod(node string, info *request.Info) string {
	switch info.Verb {
	case "list", "watch":
		sel, err := fields.ParseSelector(info.FieldSelector)
		if err == nil {
			if name, ok := sel.RequiresExactMatch("spec.nodeName"); ok && name == node {
				return ""
			}
		}
		return fmt.Sprintf("can only list/watch pods with spec.nodeName field selector of '%s'", node)
	}
	if where, known := a.graph.nodeOf(info.Namespace, info.Name); known && where != node {
		return fmt.Sprintf("no relationship found between node '%s' and this object", node)
	}
	return ""
}

// foreignLease: a node has one Lease, of its own name; it may see those of the
// proxies, which are in kube-system, and take that of upgrades there, when
// NodeRestriction finds it free.
func foreignLease(node string, info *request.Info) string {
	if info.Namespace == metav1.NamespaceSystem && (info.Verb == "list" || info.Name == upgradelock.Name) {
		return ""
	}
	switch {
	case info.Namespace != corev1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case info.Verb != "create" && info.Name != node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}
