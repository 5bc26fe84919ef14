// Package conformance holds what upstream's conformance suite requires, one
// test for each row of catalogue.tsv that Podium fulfils, named by the row's
// id. The tests speak to the cluster of KUBECONFIG through client-go:
//
//	hack/with-cluster go -C test/conformance test -count=1 ./...
package conformance
