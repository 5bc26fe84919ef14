// Package csrsigning signs approved requests for the signers of kubernetes.io:
// kube-apiserver-client, kube-apiserver-client-kubelet and kubelet-serving. The
// fourth, legacy-unknown, cannot be requested in version v1 of the API. Each
// signer may have a CA of its own (--cluster-signing-*-cert-file): the serving
// certificates of kubelets should be signed by a CA that the API server does not
// trust for clients.
//
// A request that violates its signer's rules gets the condition Failed. A certificate is
// backdated by five minutes, for hosts whose clocks are behind. It is valid as requested,
// but no longer than --cluster-signing-duration and its CA.
package csrsigning
