package flowcontrol

import (
	"strings"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// level is a priority level: users who share seats.
type level int

const (
	exempt level = iota
	nodeHigh
	system
	leaderElection
	workloadHigh
	workloadLow
	globalDefault
	levels
)

// schema is a flow schema: requests of one sort, all of one level.
type schema int

const (
	exemptSchema schema = iota
	probes
	systemNodeHigh
	systemNodes
	systemLeaderElection
	kubeControllerManager
	kubeScheduler
	kubeSystemServiceAccounts
	serviceAccounts
	globalDefaultSchema
	schemas
)

func (l level) String() string {
	return [levels]string{"exempt", "node-high", "system", "leader-election", "workload-high", "workload-low", "global-default"}[l]
}

func (s schema) String() string {
	return [schemas]string{
		"exempt", "probes", "system-node-high", "system-nodes", "system-leader-election", "kube-controller-manager",
		"kube-scheduler", "kube-system-service-accounts", "service-accounts", "global-default",
	}[s]
}

func (s schema) level() level {
	return [schemas]level{
		exempt, exempt, nodeHigh, system, leaderElection, workloadHigh, workloadHigh, workloadHigh, workloadLow, globalDefault,
	}[s]
}

// ordinary says that the level is of users who are no part of the cluster
// itself.
func (l level) ordinary() bool { return l == workloadLow || l == globalDefault }

const (
	nodesGroup     = "system:nodes"
	accountPrefix  = "system:serviceaccount:"
	systemAccounts = accountPrefix + "kube-system:"
)

// classify finds a request's flow schema and its flow: the user, or all service
// accounts of a namespace, whose administrator can make as many as he likes.
func classify(r *request.Request) (schema, string) {
	switch {
	case !r.IsResource && isProbe(r.Path):
		return probes, ""
	case r.User == nil || r.User.In(authn.Masters):
		return exemptSchema, ""
	case r.User.In(nodesGroup):
		if r.Resource == "nodes" || r.Resource == "leases" {
			return systemNodeHigh, r.User.Name
		}
		return systemNodes, r.User.Name
	}
	name := r.User.Name
	if s, ok := controlPlane(name); ok {
		if r.Resource == "leases" {
			return systemLeaderElection, name
		}
		return s, name
	}
	if account, ok := strings.CutPrefix(name, accountPrefix); ok {
		namespace, _, _ := strings.Cut(account, ":")
		return serviceAccounts, name[:len(accountPrefix)+len(namespace)]
	}
	return globalDefaultSchema, name
}

func controlPlane(name string) (schema, bool) {
	switch name {
	case "system:kube-controller-manager", "system:cloud-controller-manager":
		return kubeControllerManager, true
	case "system:kube-scheduler":
		return kubeScheduler, true
	case "system:kube-proxy":
		return kubeSystemServiceAccounts, true
	}
	return kubeSystemServiceAccounts, strings.HasPrefix(name, systemAccounts)
}

func isProbe(path string) bool {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return segment == "healthz" || segment == "livez" || segment == "readyz"
}
