// Package csrapproving approves what kubelets ask for, and nothing else.
//
// A client certificate for a node (signer kube-apiserver-client-kubelet) is
// approved when the requester may create
// certificatesigningrequests/selfnodeclient and asks for a certificate in its
// own name: a node that renews; or
// certificatesigningrequests/nodeclient: a bootstrap token of a machine that
// joins. The latter is not approved while the cluster has a node of that name
// that is alive (Ready, or with a Lease that has not run out): a token must not
// become a node that works. Upstream approves it.
//
// A serving certificate (signer kubelet-serving) is left to others upstream,
// since upstream's approver does not know the nodes' addresses. Ours approves
// it when a node asks for it in its own name; the DNS names in it are the
// node's name and those in the node's status, no more and no fewer; the IP
// addresses in it are those in the node's status; and none of them is loopback,
// link-local, multicast or unspecified, or belongs to a Service, an API server,
// the control-plane endpoint or another node. Only a node with the label
// node-role.kubernetes.io/control-plane, which kubelets cannot set, may have
// the address of an API server.
//
// Requests that fulfil none of this stay as they are, for people to decide on.
package csrapproving
