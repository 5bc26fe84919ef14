package node

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/rbac"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/upgradelock"
	"podium/pkg/volumebinding"
)

// Authorizer authorizes kubelets' requests. It is safe for concurrent use.
type Authorizer struct {
	graph *Graph
	rules *rbac.Rules
}

// New returns an authorizer. graph contains the pods; rules are an upper bound
// of what any kubelet may do.
func New(graph *Graph, rules *rbac.Rules) *Authorizer { return &Authorizer{graph, rules} }

// Name returns the node whose kubelet the user is, "" if the user is not a
// kubelet.
func Name(user *request.User) string {
	name, ok := strings.CutPrefix(user.Name, request.NodePrefix)
	if !ok || !user.In(request.Nodes) {
		return ""
	}
	return name
}

// Authorize implements authz.Authorizer. It allows kubelets what the rules
// allow on objects that are related to their node. Otherwise it returns
// NoOpinion.
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

// foreign returns the reason for which an object is not related to a node, ""
// if it is.
func (a *Authorizer) foreign(node string, info *request.Info) string {
	switch info.Resource {
	case "secrets", "configmaps", "serviceaccounts", "persistentvolumeclaims", "resourceclaims":
		return a.unrelated(node, info)
	case "persistentvolumes":
		return a.foreignVolume(node, info)
	case "resourceslices":
		return foreignSlices(node, info)
	case "volumeattachments":
		if !a.graph.attachedTo(node, info.Name) {
			return noRelationship(node)
		}
		return ""
	case "csinodes":
		return foreignCSINode(node, info)
	case "nodes":
		return foreignNode(node, info)
	case "pods":
		return a.foreignPod(node, info)
	case "leases":
		return foreignLease(node, info)
	}
	return ""
}

// unrelated returns "" if a pod of the node refers to the object, else a
// reason.
func (a *Authorizer) unrelated(node string, info *request.Info) string {
	if info.Namespace == "" || info.Name == "" || !a.graph.needed(node, ref{info.Resource, info.Namespace, info.Name}) {
		return noRelationship(node)
	}
	return ""
}

// foreignVolume returns "" for a list or watch of the volumes that are confined to the
// node, for such a volume, and for a get of one that its pods use; else a reason. Of a
// volume that it patches, NodeRestriction lets it change only its finalizer.
func (a *Authorizer) foreignVolume(node string, info *request.Info) string {
	switch info.Verb {
	case "list", "watch":
		sel, err := fields.ParseSelector(info.FieldSelector)
		if err == nil {
			if home, ok := sel.RequiresExactMatch(volumebinding.HomeField); ok && home == node {
				return ""
			}
		}
		return fmt.Sprintf("can only list/watch persistentvolumes with %s field selector of '%s'", volumebinding.HomeField, node)
	}
	if a.graph.homeOf(info.Name) == node || info.Verb == "get" && a.graph.volumeNeeded(node, info.Name) {
		return ""
	}
	return noRelationship(node)
}

func noRelationship(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// foreignNode returns "" for the node's own Node object, else a reason.
// NodeRestriction, which sees the object, checks the name on create.
func foreignNode(node string, info *request.Info) string {
	if info.Verb != "create" && info.Name != node {
		return fmt.Sprintf("node '%s' cannot %s '%s', only its own Node object", node, info.Verb, info.Name)
	}
	return ""
}

// foreignCSINode returns "" for the CSINode with the node's name, else a reason.
// NodeRestriction, which sees the object, checks the name on create.
func foreignCSINode(node string, info *request.Info) string {
	if info.Verb != "create" && info.Name != node {
		return "can only access CSINode with the same name as the requesting node"
	}
	return ""
}

// foreignSlices returns "" for the deletion of the ResourceSlices of the node, else a
// reason. The drivers publish them under their own identities.
func foreignSlices(node string, info *request.Info) string {
	sel, err := fields.ParseSelector(info.FieldSelector)
	if err == nil {
		if name, ok := sel.RequiresExactMatch(resourcev1.ResourceSliceSelectorNodeName); ok && name == node {
			return ""
		}
	}
	return fmt.Sprintf("can only delete resourceslices with %s field selector of '%s'", resourcev1.ResourceSliceSelectorNodeName, node)
}

// foreignPod returns "" for lists and watches of pods bound to the node and for
// its own pods, else a reason. A request for a pod that does not exist is
// allowed, so that the kubelet gets NotFound.
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
		return noRelationship(node)
	}
	return ""
}

// foreignLease returns "" for the Lease with the node's name, for listing the
// Leases of kube-system, and for the upgrade Lease there, which NodeRestriction
// checks further. Otherwise it returns a reason.
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
