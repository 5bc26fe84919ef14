// Package security abuses a cluster: with stolen certificates and tokens, as
// the administrator of one namespace, as nobody, and looks that none of it
// gets anywhere. It wants the cluster of KUBECONFIG, with its authority's key
// beside it:
//
//	hack/with-cluster go test -count=1 ./test/e2e/security
package security
