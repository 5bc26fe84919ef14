package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
)

const (
	read  = "get list watch"
	write = "create delete deletecollection patch update"
)

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// people adds the user-facing roles: cluster-admin, and for namespaces view,
// edit and admin, each aggregated from the roles labelled for it.
func (p *Policy) people() {
	p.clusterRoleFor("cluster-admin", groups(request.Masters),
		rule("*", "*", "*"), rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
	p.aggregate("admin", "")
	p.aggregate("edit", "admin")
	p.aggregate("view", "edit")
	p.part("admin",
		rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
		rule(read+" "+write, "rbac.authorization.k8s.io", "rolebindings roles"))
	p.part("edit",
		rule(read, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
		rule("impersonate", "core", "serviceaccounts"),
		rule(write, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
		rule("create", "core", "pods/eviction"),
		rule(write, "core", "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy"),
		rule("create", "core", "serviceaccounts/token"),
		rule(write, "apps", "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"),
		rule(write, "autoscaling", "horizontalpodautoscalers"),
		rule(write, "batch", "cronjobs jobs"),
		rule(write, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale"),
		rule(write, "policy", "poddisruptionbudgets"),
		rule(write, "networking.k8s.io", "ingresses networkpolicies"),
		rule(write, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
		rule(read+" "+write, "coordination.k8s.io", "leases"))
	p.part("view",
		rule(read, "core", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status"),
		rule(read, "core", "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas resourcequotas/status"),
		rule(read, "core", "namespaces"),
		rule(read, "discovery.k8s.io", "endpointslices"),
		rule(read, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"),
		rule(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
		rule(read, "batch", "cronjobs cronjobs/status jobs jobs/status"),
		rule(read, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"),
		rule(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
		rule(read, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
		rule(read, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"))
}

// aggregate adds a role whose rules the clusterrole-aggregation controller
// collects. Its rules are in turn aggregated to partOf, unless that is empty.
func (p *Policy) aggregate(name, partOf string) {
	r := p.clusterRole(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
	if partOf != "" {
		r.Labels[aggregateTo+partOf] = "true"
	}
}

// part adds a role that is aggregated to another.
func (p *Policy) part(of string, rules ...rbacv1.PolicyRule) {
	p.clusterRole("system:aggregate-to-"+of, rules...).Labels[aggregateTo+of] = "true"
}
