package bootstrap

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The daemons' users.
const (
	scheduler         = "system:kube-scheduler"
	controllerManager = "system:kube-controller-manager"
	cloudManager      = "system:cloud-controller-manager"
	proxy             = "system:kube-proxy"
)

func events() rbacv1.PolicyRule { return rule("create patch", "core", "events") }

// delegate lets a daemon ask who its own clients are and what they may.
func delegate(group, reviews string) rbacv1.PolicyRule { return rule("create", group, reviews) }

// daemons have what ours use. A test of the whole cluster counts which rules
// were of use and names those that were not: keep it true.
func (p *Policy) daemons() {
	p.clusterRoleFor("system:kube-scheduler", users(scheduler),
		rule("list watch", "core", "nodes"),
		rule("get list watch", "core", "pods"),
		rule("create", "core", "pods/binding"),
		rule("patch", "core", "pods/status"),
		events(),
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"))
	p.leader("kube-scheduler", scheduler)

	// It makes its controllers' accounts, draws their tokens and watches for
	// all of them; what they do, they do under their own names.
	p.clusterRoleFor("system:kube-controller-manager", users(controllerManager),
		rule("list watch", "core", "endpoints namespaces nodes pods serviceaccounts services"),
		of(rule("list watch", "core", "configmaps"), "kube-root-ca.crt"),
		rule("list watch", "apps", "deployments replicasets"),
		rule("list watch", "certificates.k8s.io", "certificatesigningrequests"),
		rule("list watch", "discovery.k8s.io", "endpointslices"),
		rule("list watch", "rbac.authorization.k8s.io", "clusterroles"),
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"))
	p.roleFor(corev1.NamespaceNodeLease, "system:kube-controller-manager", users(controllerManager),
		rule("list watch", "coordination.k8s.io", "leases"))
	p.roleFor(system, "system:controller-identities", users(controllerManager),
		rule("create", "core", "serviceaccounts"),
		rule("create", "core", "serviceaccounts/token"))
	p.leader("kube-controller-manager", controllerManager)

	// The same where there is a cloud. It draws the tokens of its own
	// controllers only. Before it takes an address from a Service it asks whether
	// that is gone.
	p.clusterRoleFor("system:cloud-controller-manager", users(cloudManager),
		rule("list watch", "core", "nodes services"),
		rule("get", "core", "services"),
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"))
	p.roleFor(system, "system:cloud-controller-identities", users(cloudManager),
		rule("create", "core", "serviceaccounts"),
		of(rule("create", "core", "serviceaccounts/token"), "cloud-node-controller", "route-controller", "service-controller"))
	p.roleFor(system, "system:load-balancer-addresses", users(cloudManager),
		rule("create delete get list update", "coordination.k8s.io", "leases"))
	p.leader("cloud-controller-manager", cloudManager)

	p.clusterRoleFor("system:node-proxier", users(proxy),
		rule("list watch", "core", "nodes services"),
		rule("list watch", "discovery.k8s.io", "endpointslices"),
		events())
	// Its Lease tells kubelets how far its rules are, and those of addresses say
	// which node announces them. On machines that joined, kube-proxy is a service
	// account. NodeRestriction keeps both from the Leases of others.
	p.roleFor(system, "system:node-proxier", append(users(proxy), account("kube-proxy")...),
		rule("create delete get list update watch", "coordination.k8s.io", "leases"))

	// Kubelets are allowed by the Node authorizer, which looks at the object,
	// too; the role is bound to nobody.
	p.clusterRole("system:node", Node()...)
	p.bind("system:node", "system:node")
}

// leader lets a daemon elect a leader among its replicas.
func (p *Policy) leader(name, user string) {
	p.roleFor(system, "system::leader-locking-"+name, users(user),
		rule("create", "coordination.k8s.io", "leases"),
		of(rule("get update", "coordination.k8s.io", "leases"), name))
}

// Node is what a kubelet may do at most; which objects it may do it to is for
// the Node authorizer and NodeRestriction to say.
func Node() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"),
		rule("list watch", "core", "services"),
		rule("create get list watch patch", "core", "nodes"),
		rule("patch", "core", "nodes/status"),
		events(),
		rule("delete get list watch", "core", "pods"),
		rule("create", "core", "pods/eviction"),
		rule("patch", "core", "pods/status"),
		rule("get", "core", "configmaps secrets"),
		rule("create", "core", "serviceaccounts/token"),
		rule("get list", "discovery.k8s.io", "endpointslices"),
		rule("create get list update", "coordination.k8s.io", "leases"),
		rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
	}
}

// controllers run under accounts of their own in kube-system, with upstream's
// names.
func (p *Policy) controllers() {
	for _, c := range []struct {
		account string
		rules   []rbacv1.PolicyRule
	}{
		{"certificate-controller", []rbacv1.PolicyRule{
			rule("delete", "certificates.k8s.io", "certificatesigningrequests"),
			rule("update", "certificates.k8s.io", "certificatesigningrequests/approval certificatesigningrequests/status"),
			of(rule("approve", "certificates.k8s.io", "signers"), "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"),
			of(rule("sign", "certificates.k8s.io", "signers"), "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving", "kubernetes.io/legacy-unknown"),
			rule("create", "authorization.k8s.io", "subjectaccessreviews"),
		}},
		{"cloud-node-controller", []rbacv1.PolicyRule{
			rule("delete patch", "core", "nodes"),
			rule("patch", "core", "nodes/status"),
			events(),
		}},
		{"clusterrole-aggregation-controller", []rbacv1.PolicyRule{
			rule("escalate patch", "rbac.authorization.k8s.io", "clusterroles"),
		}},
		{"deployment-controller", []rbacv1.PolicyRule{
			rule("get", "apps", "deployments"),
			rule("update", "apps", "deployments/status"),
			rule("create delete get patch update", "apps", "replicasets"),
			events(),
		}},
		{"endpoint-controller", []rbacv1.PolicyRule{
			rule("create delete update", "core", "endpoints"),
			events(),
		}},
		{"endpointslice-controller", []rbacv1.PolicyRule{
			rule("create delete get update", "discovery.k8s.io", "endpointslices"),
			events(),
		}},
		{"endpointslicemirroring-controller", []rbacv1.PolicyRule{
			rule("create delete update", "discovery.k8s.io", "endpointslices"),
			events(),
		}},
		// Owners and owned things are of any kind.
		{"generic-garbage-collector", []rbacv1.PolicyRule{rule("delete get list patch watch", "*", "*")}},
		// So is what a namespace holds.
		{"namespace-controller", []rbacv1.PolicyRule{
			rule("deletecollection list", "*", "*"),
			rule("update", "core", "namespaces/finalize namespaces/status"),
		}},
		{"node-controller", []rbacv1.PolicyRule{
			rule("patch", "core", "nodes"),
			rule("update", "core", "nodes/status"),
			rule("delete", "core", "pods"),
			rule("patch", "core", "pods/status"),
			events(),
		}},
		{"pod-garbage-collector", []rbacv1.PolicyRule{
			rule("get", "core", "nodes"),
			rule("delete", "core", "pods"),
			rule("patch", "core", "pods/status"),
		}},
		{"replicaset-controller", []rbacv1.PolicyRule{
			rule("get", "apps", "replicasets"),
			rule("update", "apps", "replicasets/status"),
			rule("create delete patch", "core", "pods"),
			events(),
		}},
		{"root-ca-cert-publisher", []rbacv1.PolicyRule{rule("create update", "core", "configmaps")}},
		{"tokens-controller", []rbacv1.PolicyRule{
			rule("get", "core", "serviceaccounts"),
			rule("delete list update watch", "core", "secrets"),
		}},
		{"route-controller", []rbacv1.PolicyRule{rule("patch", "core", "nodes/status"), events()}},
		{"service-account-controller", []rbacv1.PolicyRule{rule("create", "core", "serviceaccounts")}},
		{"service-controller", []rbacv1.PolicyRule{
			rule("patch", "core", "services services/status"),
			events(),
		}},
	} {
		p.clusterRoleFor("system:controller:"+c.account, account(c.account), c.rules...)
	}
	p.roleFor(system, "system:controller:bootstrap-signer", account("bootstrap-signer"), rule("list watch", "core", "secrets"))
	p.roleFor(public, "system:controller:bootstrap-signer", account("bootstrap-signer"), of(rule("list update watch", "core", "configmaps"), "cluster-info"))
	p.roleFor(system, "system:controller:token-cleaner", account("token-cleaner"), rule("delete list watch", "core", "secrets"))
}
