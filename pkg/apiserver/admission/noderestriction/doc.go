// Package noderestriction is the admission plugin NodeRestriction. It restricts
// what a kubelet may write, whatever its role allows: its own Node, except
// taints and the labels that keep workloads away from nodes; the status of its
// own pods, which it may also evict and delete; mirror pods bound to itself
// without references to the API; its own Lease; and tokens for its own pods. It
// may acquire the upgrade Lease when no other node holds it. The kube-proxy on
// a node may write the Leases of proxies, but not those of the control plane in
// the same namespace.
//
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
package noderestriction
