// Package openapi is the published description of the API: the documents that
// kubectl explain, kubectl's validation, server-side apply and client
// generators read. `make generate` (go run ./hack/openapi) writes them, a line
// a path and a line a schema, from the kinds of pkg/apiserver/registry and the
// types of k8s.io/api.
package openapi
