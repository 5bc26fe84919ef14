// Package csrapproving approves certificate signing requests of kubelets only.
//
// A client certificate for a node (signer kube-apiserver-client-kubelet) is approved when
// the requester may create certificatesigningrequests/selfnodeclient and requests a
// certificate in its own name (a node that renews), or may create
// certificatesigningrequests/nodeclient (the bootstrap token of a machine that joins). The
// latter is not approved while the cluster has a live node of that name (Ready, or with a
// Lease that has not expired): a token must not obtain the identity of a live node.
// Upstream approves it.
//
// Upstream's approver does not approve serving certificates (signer kubelet-serving),
// because it does not know the nodes' addresses. This one approves a serving certificate
// that a node requests in its own name if the DNS names in it are exactly the node's name
// and those in the node's status, the IP addresses are those in the node's status, and no
// address is loopback, link-local, multicast or unspecified, or belongs to a Service, an
// API server, the control-plane endpoint or another node. Only a node with the label
// node-role.kubernetes.io/control-plane, which kubelets cannot set, may have the address
// of an API server.
//
// All other requests are left for manual approval.
package csrapproving
