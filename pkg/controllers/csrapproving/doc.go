// Package csrapproving approves what kubelets ask for, and nothing else.
//
// A client certificate for a node (signer kube-apiserver-client-kubelet) is
// approved when the one who asks may create
// certificatesigningrequests/nodeclient: a bootstrap token of a machine that
// joins; or certificatesigningrequests/selfnodeclient and asks for a
// certificate in its own name: a node that renews.
//
// A serving certificate (signer kubelet-serving) is left to others upstream,
// since upstream's approver does not know the nodes' addresses. Ours approves
// it under four conditions: a node asks for it in its own name; the DNS names
// in it are the node's name and those in the node's status, no more and no
// fewer; the IP addresses in it are those in the node's status; none of them is
// the name or the address of a Service. It is as good as the addresses in the
// status are, which the kubelet itself, or the cloud's controller, reports.
//
// Requests that fulfil none of this stay as they are, for people to decide on.
package csrapproving
