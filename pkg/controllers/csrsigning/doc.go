// Package csrsigning signs approved requests for the signers of kubernetes.io:
// kube-apiserver-client, kube-apiserver-client-kubelet and kubelet-serving. The
// fourth, legacy-unknown, cannot be asked for in version v1 of the API, the
// only one that is served. Each signer has an authority of its own, as upstream's
// --cluster-signing-*-cert-file say: kubelets' serving certificates are to be
// signed by one that clients of the API server do not trust.
//
// A request that its signer's rules do not allow gets the condition Failed. A
// certificate is good from five minutes ago, for hosts whose clocks are behind;
// for as long as was asked and no longer than --cluster-signing-duration; and
// never longer than its authority.
package csrsigning
