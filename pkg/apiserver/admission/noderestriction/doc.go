// Package noderestriction is the admission plugin NodeRestriction: what a
// kubelet may write, whatever its role allows. It writes its own Node, and of
// that neither taints nor the labels by which workloads are kept away from
// nodes; statuses of its own pods, which it may also evict and delete; mirror
// pods bound to itself that refer to nothing in the API; its own Lease; and it
// asks for tokens of its own pods only. It takes its turn to be upgraded when
// no other node has it. The kube-proxy beside it writes the
// Leases of proxies, and not those of the control plane in the same namespace.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
package noderestriction
