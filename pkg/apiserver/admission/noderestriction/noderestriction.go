package noderestriction

import (
	"context"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/upgradelock"
)

// rules checks one request of one node.
type rules struct {
	*admission.Attributes
	admission.Host
	ctx  context.Context
	node string
}

// New returns the plugin. The host's authorizer decides for which audiences a
// node may request tokens beyond those of its pods.
func New(h admission.Host) admission.Plugin {
	return admission.Plugin{Mutate: func(ctx context.Context, a *admission.Attributes) error {
		if isProxy(a.User) {
			return proxyLease(a)
		}
		name, ok := nodeOf(a.User)
		if !ok {
			return nil
		}
		r := rules{Attributes: a, Host: h, ctx: ctx, node: name}
		if name == "" {
			return r.no("could not determine node from user %q", a.User.Name)
		}
		switch a.Resource.GroupResource().String() {
		case "pods":
			return r.pod()
		case "nodes":
			return r.ownNode()
		case "serviceaccounts":
			return r.token()
		case "persistentvolumes":
			return r.volume()
		case "leases.coordination.k8s.io":
			return r.lease()
		case "csinodes.storage.k8s.io":
			return r.csiNode()
		case "persistentvolumeclaims":
			return r.claim()
		}
		return nil
	}}
}

// nodeOf returns the name of the node whose kubelet the user is. ok is false
// for other users. name may be empty even if ok is set.
func nodeOf(u *request.User) (name string, ok bool) {
	if u == nil || !u.In("system:nodes") {
		return "", false
	}
	return strings.CutPrefix(u.Name, "system:node:")
}

// no returns the Forbidden error of the request.
func (r *rules) no(format string, args ...any) error {
	return admission.Forbidden(r.Attributes, format, args...)
}

func (r *rules) pod() error {
	switch r.Subresource {
	case "":
		return r.wholePod()
	case "status":
		return r.podStatus()
	case "eviction":
		pod, err := r.existing(r.Namespace, r.Name)
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != r.node {
			return r.no("node %s can only evict pods with spec.nodeName set to itself", r.node)
		}
		return nil
	}
	return r.no("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", r.Subresource)
}

// existing returns a stored pod, or the error for the client.
func (r *rules) existing(namespace, name string) (*corev1.Pod, error) {
	obj, err := r.Objects.Get(r.ctx, corev1.SchemeGroupVersion.WithResource("pods"), namespace, name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, err
		}
		return nil, r.no("%v", err)
	}
	return obj.(*corev1.Pod), nil
}

// wholePod admits the creation of the node's mirror pods and the deletion of
// pods bound to it.
func (r *rules) wholePod() error {
	switch r.Operation {
	case admission.Create:
		return r.mirrorPod(r.Object.(*corev1.Pod))
	case admission.Delete:
		if r.Old.(*corev1.Pod).Spec.NodeName != r.node {
			return r.no("node %q can only delete pods with spec.nodeName set to itself", r.node)
		}
		return nil
	}
	return r.no("unexpected operation %q, node %q can only create and delete mirror pods", r.Operation, r.node)
}

// podStatus admits status updates of pods bound to the node that keep labels
// and resource claim statuses.
func (r *rules) podStatus() error {
	if r.Operation != admission.Update {
		return r.no("unexpected operation %q", r.Operation)
	}
	old, next := r.Old.(*corev1.Pod), r.Object.(*corev1.Pod)
	switch {
	case old.Spec.NodeName != r.node:
		return r.no("node %q can only update pod status for pods with spec.nodeName set to itself", r.node)
	case !labels.Equals(old.Labels, next.Labels):
		return r.no("node %q cannot update labels through pod status", r.node)
	case !apiequality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, next.Status.ResourceClaimStatuses):
		return r.no("node %q cannot update resource claim statues", r.node)
	case !apiequality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, next.Status.ExtendedResourceClaimStatus):
		return r.no("node %q cannot update extended resource claim status", r.node)
	}
	return nil
}

// token admits only tokens bound to a pod of this node, for an audience that
// the pod's volumes name.
func (r *rules) token() error {
	if r.Operation != admission.Create || r.Subresource != "token" {
		return nil
	}
	ask, ok := r.Body.(*authenticationv1.TokenRequest)
	if !ok {
		return r.no("unexpected type %T", r.Body)
	}
	ref := ask.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return r.no("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return r.no("node requested token with a pod binding without a uid")
	}
	pod, err := r.existing(r.Namespace, ref.Name)
	switch {
	case err != nil:
		return err
	case ref.UID != pod.UID:
		return r.no("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != r.node:
		return r.no("node requested token bound to a pod scheduled on a different node")
	}
	return r.audience(ask.Spec.Audiences, pod)
}

// audience admits at most one audience, which a projected volume of the pod
// names or a role grants. "" is the API server's.
//
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
func (r *rules) audience(asked []string, pod *corev1.Pod) error {
	if len(asked) > 1 {
		return r.no("node may only request 0 or 1 audiences")
	}
	want := ""
	if len(asked) == 1 {
		want = asked[0]
	}
	if projects(pod, want) {
		return nil
	}
	if ok, err := r.driverRequests(pod, want); ok || err != nil {
		return err
	}
	grant := &request.Info{
		IsResource: true, Verb: "request-serviceaccounts-token-audience", Version: "v1",
		Namespace: r.Namespace, Resource: want, Name: r.Name,
	}
	if d, _ := r.Authorizer.Authorize(r.ctx, r.User, grant); d == authz.Allow {
		return nil
	}
	return r.no("audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", want, r.User.Name)
}

// projects reports whether a volume of the pod contains a token for the
// audience.
func projects(pod *corev1.Pod, audience string) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if t := source.ServiceAccountToken; t != nil && t.Audience == audience {
				return true
			}
		}
	}
	return false
}

// lease admits writes of the node's own Lease and, as turn allows, of the
// upgrade Lease.
func (r *rules) lease() error {
	switch {
	case r.Namespace == upgradelock.Namespace && r.Name == upgradelock.Name:
		return r.turn()
	case r.Namespace != corev1.NamespaceNodeLease:
		return r.no("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case r.Name != r.node:
		return r.no("can only access node lease with the same name as the requesting node")
	}
	return nil
}

// turn checks writes of the upgrade Lease: a node may acquire it when it is
// free and release it, only for itself, and may not delete it.
func (r *rules) turn() error {
	next, ok := r.Object.(*coordinationv1.Lease)
	if !ok {
		return r.no("node %q is not allowed to delete the lease %q", r.node, r.Name)
	}
	if h := next.Spec.HolderIdentity; h != nil && *h != "" && *h != r.node {
		return r.no("node %q can only take the lease %q for itself", r.node, r.Name)
	}
	if old, ok := r.Old.(*coordinationv1.Lease); ok {
		if h := upgradelock.Holder(old, time.Now()); h != "" && h != r.node {
			return r.no("the lease %q is held by %q", r.Name, h)
		}
	}
	return nil
}
