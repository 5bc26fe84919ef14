package bootstrap_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/authz/bootstrap"
	"podium/pkg/apiserver/authz/rbac"
	"podium/pkg/apiserver/request"
	"podium/pkg/roles"
)

// policy returns the default policy as an authorizer.
func policy() *rbac.Policy {
	p, all := rbac.New(), bootstrap.Default()
	for _, o := range all.ClusterRoles {
		p.ClusterRoles().Put(o)
	}
	for _, o := range all.Roles {
		p.Roles().Put(o)
	}
	for _, o := range all.ClusterRoleBindings {
		p.ClusterRoleBindings().Put(o)
	}
	for _, o := range all.RoleBindings {
		p.RoleBindings().Put(o)
	}
	return p
}

func TestDefaultPolicy(t *testing.T) {
	p := policy()
	user := func(name string, groups ...string) *request.User {
		return &request.User{Name: name, Groups: append(groups, request.Authenticated)}
	}
	joe := user("joe")
	nobody := &request.User{Name: request.AnonymousUser, Groups: []string{request.Unauthenticated}}
	controller := func(name string) *request.User {
		return user("system:serviceaccount:kube-system:"+name, "system:serviceaccounts", "system:serviceaccounts:kube-system")
	}
	for _, tc := range []struct {
		user         *request.User
		method, path string
		want         bool
	}{
		{user("ann", request.Masters), "DELETE", "/api/v1/nodes/n", true},
		{user("system:kube-scheduler"), "POST", "/api/v1/namespaces/a/pods/b/binding", true},
		{user("system:kube-scheduler"), "GET", "/api/v1/secrets", false},
		{user("system:kube-scheduler"), "PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", true},
		{user("system:kube-scheduler"), "PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager", false},
		{user("system:kube-scheduler"), "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?watch=1&fieldSelector=metadata.name%3Dkube-scheduler", true},
		{user("system:kube-scheduler"), "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?watch=1", false},
		{user("system:kube-scheduler"), "PUT", "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c/binding", true},
		{controller("resource-claim-controller"), "PUT", "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c/binding", true},
		{user("system:kube-controller-manager"), "POST", "/api/v1/namespaces/kube-system/serviceaccounts/deployment-controller/token", true},
		{user("system:kube-controller-manager"), "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", false},
		{user("system:kube-controller-manager"), "POST", "/api/v1/namespaces/default/pods", false},
		{user("system:cloud-controller-manager"), "POST", "/api/v1/namespaces/kube-system/serviceaccounts/cloud-node-controller/token", true},
		{user("system:cloud-controller-manager"), "POST", "/api/v1/namespaces/kube-system/serviceaccounts/namespace-controller/token", false},
		{user("system:cloud-controller-manager"), "GET", "/api/v1/secrets", false},
		{controller("cloud-node-controller"), "DELETE", "/api/v1/nodes/n", true},
		{controller("cloud-node-controller"), "DELETE", "/api/v1/namespaces/default/pods/p", false},
		{controller("replicaset-controller"), "POST", "/api/v1/namespaces/default/pods", true},
		{controller("root-ca-cert-publisher"), "POST", "/api/v1/namespaces/default/pods", false},
		{user("system:serviceaccount:default:replicaset-controller"), "POST", "/api/v1/namespaces/default/pods", false},
		{user("system:kube-proxy"), "GET", "/apis/discovery.k8s.io/v1/endpointslices", true},
		{user("system:kube-proxy"), "GET", "/api/v1/secrets", false},
		{user("system:node:n", request.Nodes), "GET", "/api/v1/namespaces/a/secrets/s", false}, // only the Node authorizer allows this
		{joe, "GET", "/api/v1/pods", false},
		{joe, "GET", "/apis/apps/v1", true},
		{joe, "GET", "/openapi/v3", true},
		{joe, "POST", "/apis", false},
		{joe, "GET", "/metrics", false},
		{joe, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true},
		{joe, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", false},
		{joe, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", true},
		{joe, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", false},
		{user("m", "system:monitoring"), "GET", "/metrics", true},
		{user("m", "system:monitoring"), "GET", "/readyz/etcd", true},
		{controller("any"), "GET", "/openid/v1/jwks", true},
		{joe, "GET", "/openid/v1/jwks", false},
		{nobody, "GET", "/healthz", true},
		{nobody, "GET", "/readyz", true},
		{nobody, "GET", "/readyz/etcd", false},
		{nobody, "GET", "/version", true},
		{nobody, "GET", "/apis", false},
		{nobody, "GET", "/api/v1/pods", false},
		{nobody, "GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info", true},
		{nobody, "GET", "/api/v1/namespaces/kube-public/configmaps/other", false},
		{nobody, "GET", "/api/v1/namespaces/kube-public/configmaps", false},
		{user("system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"), "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", true},
		{user("system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"), "GET", "/api/v1/nodes", false},
		{user("system:bootstrap:abcdef", "system:bootstrappers"), "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", false},
	} {
		info := request.Parse(httptest.NewRequest(tc.method, tc.path, nil))
		if d, _ := p.Authorize(t.Context(), tc.user, &info); (d == authz.Allow) != tc.want {
			t.Errorf("%s: %s %s: %v, want %v", tc.user.Name, tc.method, tc.path, d, tc.want)
		}
	}
}

// Names of roles are unique, and each binding refers to an existing role.
func TestNamesAreUniqueAndRolesExist(t *testing.T) {
	all := bootstrap.Default()
	known := map[string]bool{}
	add := func(kind, namespace, name string) {
		key := kind + " " + namespace + "/" + name
		if known[key] {
			t.Errorf("%s is there twice", key)
		}
		known[key] = true
	}
	for _, o := range all.ClusterRoles {
		add("ClusterRole", "", o.Name)
		if o.Annotations[roles.AutoUpdate] != "true" || o.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" {
			t.Errorf("%s is not marked", o.Name)
		}
	}
	for _, o := range all.Roles {
		add("Role", o.Namespace, o.Name)
	}
	for _, o := range all.ClusterRoleBindings {
		add("ClusterRoleBinding", "", o.Name)
		if !known["ClusterRole /"+o.RoleRef.Name] {
			t.Errorf("%s binds %s, which is not there", o.Name, o.RoleRef.Name)
		}
	}
	for _, o := range all.RoleBindings {
		add("RoleBinding", o.Namespace, o.Name)
		if !known["Role "+o.Namespace+"/"+o.RoleRef.Name] {
			t.Errorf("%s binds %s, which is not there", o.Name, o.RoleRef.Name)
		}
	}
}

// Users with the role edit write neither the status of Services nor Endpoints,
// which could contain arbitrary addresses (CVE-2020-8554, CVE-2021-25740).
func TestEditorsDoNotWriteServiceStatusAndEndpoints(t *testing.T) {
	for _, role := range bootstrap.Default().ClusterRoles {
		if role.Labels["rbac.authorization.k8s.io/aggregate-to-admin"] != "true" && role.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range []string{"create", "update", "patch", "*"} {
				for _, resource := range []string{"services/status", "endpoints", "endpointslices", "*", "services/*", "*/status"} {
					if slices.Contains(rule.Verbs, verb) && slices.Contains(rule.Resources, resource) {
						t.Errorf("%s may %s %s", role.Name, verb, resource)
					}
				}
			}
		}
	}
}
