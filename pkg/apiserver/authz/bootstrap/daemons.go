package bootstrap

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The users of the daemons.
const (
	scheduler         = "system:kube-scheduler"
	controllerManager = "system:kube-controller-manager"
	cloudManager      = "system:cloud-controller-manager"
	proxy             = "system:kube-proxy"
)

func events() rbacv1.PolicyRule { return rule("create patch", "core", "events") }

// delegate returns a rule for delegated authentication or authorization of a
// daemon's own clients.
func delegate(group, reviews string) rbacv1.PolicyRule { return rule("create", group, reviews) }

// daemons adds the roles of Podium's daemons, limited to what they use: an
// end-to-end test reports rules that were never used.
func (p *Policy) daemons() {
	p.clusterRoleFor("system:kube-scheduler", users(scheduler),
		rule("list watch", "core", "namespaces nodes replicationcontrollers services"),
		rule("list watch", "apps", "replicasets statefulsets"),
		rule("delete get list watch", "core", "pods"),
		rule("create", "core", "pods/binding"),
		rule("list watch", "policy", "poddisruptionbudgets"),
		rule("patch", "core", "pods/status"),
		rule("list watch", "resource.k8s.io", "deviceclasses devicetaintrules resourceslices"),
		rule("create delete list update watch", "resource.k8s.io", "resourceclaims"),
		rule("update", "resource.k8s.io", "resourceclaims/binding resourceclaims/status"),
		events(),
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"))
	p.clusterRoleFor("system:volume-scheduler", users(scheduler),
		rule("list patch watch", "core", "persistentvolumeclaims persistentvolumes"),
		rule("list watch", "storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments"))
	p.leader("kube-scheduler", scheduler)

	// It creates its controllers' service accounts, requests their tokens and
	// runs informers for all of them. Controllers write under their own
	// accounts.
	p.clusterRoleFor("system:kube-controller-manager", users(controllerManager),
		rule("list watch", "core", "endpoints namespaces nodes persistentvolumeclaims persistentvolumes pods replicationcontrollers resourcequotas serviceaccounts services"),
		of(rule("list watch", "core", "configmaps"), "kube-root-ca.crt"),
		rule("list watch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
		rule("list watch", "apps", "controllerrevisions daemonsets deployments replicasets statefulsets"),
		rule("list watch", "autoscaling", "horizontalpodautoscalers"),
		rule("list watch", "batch", "cronjobs jobs"),
		rule("list watch", "certificates.k8s.io", "certificatesigningrequests"),
		rule("list watch", "discovery.k8s.io", "endpointslices"),
		rule("list watch", "policy", "poddisruptionbudgets"),
		rule("list watch", "networking.k8s.io", "ipaddresses servicecidrs"),
		rule("list watch", "rbac.authorization.k8s.io", "clusterroles"),
		rule("list watch", "resource.k8s.io", "devicetaintrules resourceclaims resourceclaimtemplates resourceslices"),
		rule("list watch", "storage.k8s.io", "csidrivers storageclasses volumeattachments volumeattributesclasses"),
		rule("list watch", "storagemigration.k8s.io", "storageversionmigrations"),
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"))
	p.roleFor(corev1.NamespaceNodeLease, "system:kube-controller-manager", users(controllerManager),
		rule("list watch", "coordination.k8s.io", "leases"))
	p.roleFor(system, "system:controller-identities", users(controllerManager),
		rule("create", "core", "serviceaccounts"),
		rule("create", "core", "serviceaccounts/token"))
	p.leader("kube-controller-manager", controllerManager)

	// The same for the cloud-controller-manager, which may request tokens only
	// for its own controllers. Before it removes an address from a Service it
	// checks whether the Service is gone.
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
	// kube-proxy's own Lease tells kubelets which rules it has applied; those
	// of addresses say which node announces them. On machines that joined,
	// kube-proxy is a service account. NodeRestriction keeps both from the
	// Leases of others.
	p.roleFor(system, "system:node-proxier", append(users(proxy), account("kube-proxy")...),
		rule("create delete get list update watch", "coordination.k8s.io", "leases"))

	// The Node authorizer allows kubelets' requests, since it checks the object
	// as well; the role is bound to no subject.
	p.clusterRole("system:node", Node()...)
	p.bind("system:node", "system:node")
}

// leader adds the role for leader election among a daemon's replicas.
func (p *Policy) leader(name, user string) {
	p.roleFor(system, "system::leader-locking-"+name, users(user),
		rule("create", "coordination.k8s.io", "leases"),
		of(rule("get update watch", "coordination.k8s.io", "leases"), name))
}

// Node returns the rules for all kubelets. The Node authorizer and
// NodeRestriction further restrict the objects.
func Node() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		delegate("authentication.k8s.io", "tokenreviews"),
		delegate("authorization.k8s.io", "subjectaccessreviews"),
		rule("list watch", "core", "services"),
		rule("create get list watch patch", "core", "nodes"),
		rule("patch", "core", "nodes/status"),
		events(),
		rule("create delete get list watch", "core", "pods"), // NodeRestriction admits mirror pods only
		rule("create", "core", "pods/eviction"),
		rule("patch", "core", "pods/status"),
		rule("get watch", "core", "configmaps secrets"),
		rule("get", "core", "persistentvolumeclaims"),
		rule("get list patch watch", "core", "persistentvolumes"),
		rule("create", "core", "serviceaccounts/token"),
		rule("get list", "discovery.k8s.io", "endpointslices"),
		rule("create get list update", "coordination.k8s.io", "leases"),
		rule("patch", "core", "persistentvolumeclaims/status"),
		rule("get", "storage.k8s.io", "csidrivers volumeattachments"),
		rule("create get update", "storage.k8s.io", "csinodes"),
		rule("get", "node.k8s.io", "runtimeclasses"),
		rule("get", "resource.k8s.io", "resourceclaims"),
		rule("deletecollection", "resource.k8s.io", "resourceslices"),
		rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
	}
}

// controllers adds the roles of controllers, which run under their own service
// accounts in kube-system, with upstream's names.
func (p *Policy) controllers() {
	for _, c := range []struct {
		account string
		rules   []rbacv1.PolicyRule
	}{
		{"attachdetach-controller", []rbacv1.PolicyRule{
			rule("patch", "core", "nodes/status"),
			rule("create delete", "storage.k8s.io", "volumeattachments"),
			rule("patch", "storage.k8s.io", "volumeattachments/status"),
			events(),
		}},
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
		{"cronjob-controller", []rbacv1.PolicyRule{
			rule("update", "batch", "cronjobs/status"),
			rule("create delete get", "batch", "jobs"),
			events(),
		}},
		{"daemon-set-controller", []rbacv1.PolicyRule{
			rule("get", "apps", "daemonsets"),
			rule("update", "apps", "daemonsets/status"),
			rule("create delete get patch", "apps", "controllerrevisions"),
			rule("create delete patch", "core", "pods"),
			events(),
		}},
		{"deployment-controller", []rbacv1.PolicyRule{
			rule("get", "apps", "deployments"),
			rule("update", "apps", "deployments/status"),
			rule("create delete get patch update", "apps", "replicasets"),
			events(),
		}},
		{"device-taint-eviction-controller", []rbacv1.PolicyRule{
			rule("delete", "core", "pods"),
			rule("patch", "core", "pods/status"),
			rule("update", "resource.k8s.io", "devicetaintrules/status"),
			events(),
		}},
		// Controllers of pods may be of any kind.
		{"disruption-controller", []rbacv1.PolicyRule{
			rule("get", "*", "*/scale"),
			rule("update", "policy", "poddisruptionbudgets/status"),
			rule("patch", "core", "pods/status"),
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
		{"ephemeral-volume-controller", []rbacv1.PolicyRule{
			rule("create", "core", "persistentvolumeclaims"),
			events(),
		}},
		{"expand-controller", []rbacv1.PolicyRule{
			rule("update", "core", "persistentvolumeclaims/status"),
			rule("patch", "core", "persistentvolumes"),
			events(),
		}},
		// Owners and dependents may be of any kind.
		{"generic-garbage-collector", []rbacv1.PolicyRule{rule("delete get list patch watch", "*", "*"), events()}},
		// Targets, and the objects of custom metrics, may be of any kind.
		{"horizontal-pod-autoscaler", []rbacv1.PolicyRule{
			rule("get update", "*", "*/scale"),
			rule("update", "autoscaling", "horizontalpodautoscalers/status"),
			rule("list", "metrics.k8s.io", "pods"),
			rule("get", "custom.metrics.k8s.io", "*"),
			rule("list", "external.metrics.k8s.io", "*"),
			events(),
		}},
		{"job-controller", []rbacv1.PolicyRule{
			rule("get", "batch", "jobs"),
			rule("update", "batch", "jobs/status"),
			rule("create delete patch", "core", "pods"),
			events(),
		}},
		{"legacy-service-account-token-cleaner", []rbacv1.PolicyRule{
			of(rule("get", "core", "configmaps"), "kube-apiserver-legacy-service-account-token-tracking"),
			rule("delete list patch watch", "core", "secrets"),
		}},
		{"local-path-provisioner", []rbacv1.PolicyRule{
			rule("get", "core", "nodes"),
			rule("patch", "core", "persistentvolumeclaims"),
			rule("create delete", "core", "persistentvolumes"),
			events(),
		}},
		// A namespace may contain objects of any kind.
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
		{"persistent-volume-binder", []rbacv1.PolicyRule{
			rule("get patch update", "core", "persistentvolumeclaims"),
			rule("update", "core", "persistentvolumeclaims/status persistentvolumes persistentvolumes/status"),
			events(),
		}},
		{"pod-garbage-collector", []rbacv1.PolicyRule{
			rule("get", "core", "nodes"),
			rule("delete", "core", "pods"),
			rule("patch", "core", "pods/status"),
		}},
		{"pv-protection-controller", []rbacv1.PolicyRule{rule("patch", "core", "persistentvolumes")}},
		{"pvc-protection-controller", []rbacv1.PolicyRule{
			rule("patch", "core", "persistentvolumeclaims"),
			rule("get list", "core", "pods"),
		}},
		{"replicaset-controller", []rbacv1.PolicyRule{
			rule("get", "apps", "replicasets"),
			rule("update", "apps", "replicasets/status"),
			rule("create delete patch", "core", "pods"),
			events(),
		}},
		{"replication-controller", []rbacv1.PolicyRule{
			rule("get", "core", "replicationcontrollers"),
			rule("update", "core", "replicationcontrollers/status"),
			rule("create delete patch", "core", "pods"),
			events(),
		}},
		{"resource-claim-controller", []rbacv1.PolicyRule{
			rule("get", "core", "pods"),
			rule("patch", "core", "pods/status"),
			rule("create delete update", "resource.k8s.io", "resourceclaims"),
			rule("update", "resource.k8s.io", "resourceclaims/binding resourceclaims/status"),
			events(),
		}},
		// Quotas may limit the number of objects of any kind.
		{"resourcequota-controller", []rbacv1.PolicyRule{
			rule("list watch", "*", "*"),
			rule("update", "core", "resourcequotas/status"),
		}},
		{"root-ca-cert-publisher", []rbacv1.PolicyRule{rule("create update", "core", "configmaps")}},
		{"tokens-controller", []rbacv1.PolicyRule{
			rule("get", "core", "serviceaccounts"),
			rule("delete list update watch", "core", "secrets"),
		}},
		{"route-controller", []rbacv1.PolicyRule{rule("patch", "core", "nodes/status"), events()}},
		{"service-account-controller", []rbacv1.PolicyRule{rule("create", "core", "serviceaccounts")}},
		{"service-cidrs-controller", []rbacv1.PolicyRule{
			rule("list", "networking.k8s.io", "ipaddresses"),
			rule("update", "networking.k8s.io", "servicecidrs servicecidrs/status"),
		}},
		{"service-controller", []rbacv1.PolicyRule{
			rule("patch", "core", "services services/status"),
			events(),
		}},
		{"statefulset-controller", []rbacv1.PolicyRule{
			rule("get", "apps", "statefulsets"),
			rule("update", "apps", "statefulsets/status"),
			rule("create delete get patch", "apps", "controllerrevisions"),
			rule("create delete patch", "core", "pods"),
			rule("create update", "core", "persistentvolumeclaims"),
			events(),
		}},
		// Any resource may be migrated.
		{"storage-version-migrator-controller", []rbacv1.PolicyRule{
			rule("list patch", "*", "*"),
			rule("update", "storagemigration.k8s.io", "storageversionmigrations/status"),
		}},
		{"ttl-after-finished-controller", []rbacv1.PolicyRule{rule("delete get", "batch", "jobs")}},
		{"ttl-controller", []rbacv1.PolicyRule{rule("patch", "core", "nodes")}},
		{"validatingadmissionpolicy-status-controller", []rbacv1.PolicyRule{
			rule("update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
		}},
		{"volumeattributesclass-protection-controller", []rbacv1.PolicyRule{
			rule("list", "core", "persistentvolumeclaims persistentvolumes"),
			rule("patch", "storage.k8s.io", "volumeattributesclasses"),
		}},
	} {
		p.clusterRoleFor("system:controller:"+c.account, account(c.account), c.rules...)
	}
	p.roleFor(system, "system:controller:bootstrap-signer", account("bootstrap-signer"), rule("list watch", "core", "secrets"))
	p.roleFor(public, "system:controller:bootstrap-signer", account("bootstrap-signer"), of(rule("list update watch", "core", "configmaps"), "cluster-info"))
	p.roleFor(system, "system:controller:token-cleaner", account("token-cleaner"), rule("delete list watch", "core", "secrets"))
}
