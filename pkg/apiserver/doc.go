// Package apiserver is the one door to the store: an HTTP server that speaks
// the Kubernetes API. A request passes the chain (chain.go), then the endpoint
// of its verb (package endpoints), whose rules for each kind are in package
// registry.
package apiserver
