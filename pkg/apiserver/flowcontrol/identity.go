package flowcontrol

import (
	"strings"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

const (
	nodesGroup     = "system:nodes"
	accountPrefix  = "system:serviceaccount:"
	systemAccounts = accountPrefix + "kube-system:"
)

// identity returns who limits of places and bytes apply to: the user, or all service
// accounts of a namespace, since its administrator can create any number of them.
// ordinary is false for nodes, the control plane, administrators and probes. It
// depends on no object that users can change.
func identity(r *request.Request) (name string, ordinary bool) {
	if !r.IsResource && isProbe(r.Path) || r.User.In(authn.Masters) {
		return "", false
	}
	name = r.User.Name
	if r.User.In(nodesGroup) || controlPlane(name) {
		return name, false
	}
	if account, ok := strings.CutPrefix(name, accountPrefix); ok {
		namespace, _, _ := strings.Cut(account, ":")
		name = name[:len(accountPrefix)+len(namespace)]
	}
	return name, true
}

// controlPlane reports whether the user is a component of the control plane.
func controlPlane(name string) bool {
	switch name {
	case "system:kube-controller-manager", "system:cloud-controller-manager", "system:kube-scheduler", "system:kube-proxy":
		return true
	}
	return strings.HasPrefix(name, systemAccounts)
}

// isProbe reports whether the path is a health check, in any of its forms.
func isProbe(path string) bool {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return segment == "healthz" || segment == "livez" || segment == "readyz"
}
