// Package conformance checks the rows of catalogue.tsv, which lists in one
// line each what upstream's conformance suite requires. A row has one test,
// named by the row's id, which drives the cluster of KUBECONFIG through
// client-go:
//
//	hack/with-cluster go -C test/conformance test -count=1 ./...
//
// Each row is in one of four states. It passes or fails; it is missing, as
// long as no test checks it; or it is not runnable on the project's machines,
// with the reason in notrunnable.tsv. Rows that need several nodes run on
// clusters that have them, and are left out of the others.
//
// passing.txt lists the rows that have passed. It only grows: a row that is in
// the list and has no test fails the run.
package conformance
