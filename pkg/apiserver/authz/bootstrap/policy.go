package bootstrap

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
	"podium/pkg/roles"
)

// The label of the objects that this package defines.
const (
	label      = "kubernetes.io/bootstrapping"
	labelValue = "rbac-defaults"
)

const (
	system = metav1.NamespaceSystem
	public = metav1.NamespacePublic
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Default returns a new copy of the default policy.
func Default() *Policy {
	p := &Policy{}
	p.people()
	p.clients()
	p.daemons()
	p.controllers()
	p.joining()
	return p
}

// rule returns a rule from space-separated lists, such as "get list watch",
// "apps batch" and "deployments jobs/status". The group "core" stands for the
// empty group.
func rule(verbs, groups, resources string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: strings.Fields(groups), Resources: strings.Fields(resources)}
	for i, g := range r.APIGroups {
		if g == "core" {
			r.APIGroups[i] = ""
		}
	}
	return r
}

// of restricts a rule to objects with the given names.
func of(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// urls returns a rule that allows get on paths that are not resources.
func urls(paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: paths}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels: map[string]string{label: labelValue}, Annotations: map[string]string{roles.AutoUpdate: "true"},
	}
}

// clusterRole adds a ClusterRole and returns it, so that callers can label it.
func (p *Policy) clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: rules}
	p.ClusterRoles = append(p.ClusterRoles, r)
	return r
}

// clusterRoleFor adds a ClusterRole and a ClusterRoleBinding of the same name.
func (p *Policy) clusterRoleFor(name string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	p.clusterRole(name, rules...)
	p.bind(name, name, subjects...)
}

func (p *Policy) bind(name, role string, subjects ...rbacv1.Subject) {
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", name), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

// roleFor adds a Role and a RoleBinding of the same name.
func (p *Policy) roleFor(namespace, name string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	p.Roles = append(p.Roles, &rbacv1.Role{ObjectMeta: meta(namespace, name), Rules: rules})
	p.bindIn(namespace, name, name, subjects...)
}

func (p *Policy) bindIn(namespace, name, role string, subjects ...rbacv1.Subject) {
	p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
		ObjectMeta: meta(namespace, name), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
	})
}

func users(names ...string) []rbacv1.Subject { return subjects(rbacv1.UserKind, names) }

func groups(names ...string) []rbacv1.Subject { return subjects(rbacv1.GroupKind, names) }

func subjects(kind string, names []string) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, name := range names {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name})
	}
	return out
}

// account returns a service account of kube-system as a subject.
func account(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name}}
}

// clients adds the roles for discovery and health, and those for other programs
// that upstream defines.
func (p *Policy) clients() {
	everybody := groups(request.Authenticated, request.Unauthenticated)
	known := groups(request.Authenticated)
	p.clusterRoleFor("system:public-info-viewer", everybody, urls("/healthz", "/livez", "/readyz", "/version", "/version/"))
	p.clusterRoleFor("system:discovery", known,
		urls("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"))
	p.clusterRoleFor("system:basic-user", known,
		rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
		rule("create", "authentication.k8s.io", "selfsubjectreviews"))
	p.clusterRoleFor("system:monitoring", groups("system:monitoring"),
		urls("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"))
	p.clusterRoleFor("system:service-account-issuer-discovery", groups("system:serviceaccounts"),
		urls("/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"))
	p.clusterRole("system:auth-delegator",
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "subjectaccessreviews"))
	p.clusterRole("system:kube-aggregator", rule("get list watch", "core", "endpoints services"))
	p.clusterRoleFor("system:kube-dns", account("kube-dns"), rule("list watch", "core", "endpoints services"))
	p.clusterRole("system:node-problem-detector",
		rule("get", "core", "nodes"), rule("patch", "core", "nodes/status"), rule("create patch update", "core events.k8s.io", "events"))
	p.clusterRole("system:persistent-volume-provisioner",
		rule("create delete get list watch", "core", "persistentvolumes"),
		rule("get list update watch", "core", "persistentvolumeclaims"),
		rule("get list watch", "storage.k8s.io", "storageclasses"),
		rule("watch", "core", "events"),
		rule("create patch update", "core events.k8s.io", "events"))
	p.clusterRoleFor("system:kubelet-api-admin", users("kube-apiserver-kubelet-client"), // the API server, as a client of kubelets
		rule("get list watch", "core", "nodes"),
		rule("proxy", "core", "nodes"),
		rule("*", "core", "nodes/configz nodes/healthz nodes/log nodes/metrics nodes/pods nodes/proxy nodes/stats"))
	// Daemons that authenticate client certificates read the client CA and the
	// revocation list there.
	p.roleFor(system, "extension-apiserver-authentication-reader", append(users(scheduler, controllerManager, cloudManager), groups(request.Nodes)...),
		of(rule("get list watch", "core", "configmaps"), "extension-apiserver-authentication"))
}

// joining adds the roles by which a machine with a bootstrap token becomes a
// node, with the names that kubeadm uses.
func (p *Policy) joining() {
	const tokens = "system:bootstrappers:kubeadm:default-node-token"
	p.clusterRole("system:node-bootstrapper", rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"))
	for _, sort := range []string{"nodeclient", "selfnodeclient"} {
		p.clusterRole("system:certificates.k8s.io:certificatesigningrequests:"+sort,
			rule("create", "certificates.k8s.io", "certificatesigningrequests/"+sort))
	}
	for name, signer := range map[string]string{
		"kube-apiserver-client-approver":         "kubernetes.io/kube-apiserver-client",
		"kube-apiserver-client-kubelet-approver": "kubernetes.io/kube-apiserver-client-kubelet",
		"kubelet-serving-approver":               "kubernetes.io/kubelet-serving",
		"legacy-unknown-approver":                "kubernetes.io/legacy-unknown",
	} {
		p.clusterRole("system:certificates.k8s.io:"+name, of(rule("approve", "certificates.k8s.io", "signers"), signer))
	}
	p.bind("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", groups(tokens)...)
	p.bind("kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", groups(tokens)...)
	p.bind("kubeadm:node-autoapprove-certificate-rotation", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", groups(request.Nodes)...)
	p.roleFor(public, "kubeadm:bootstrap-signer-clusterinfo", users(request.AnonymousUser),
		of(rule("get", "core", "configmaps"), "cluster-info"))
}
