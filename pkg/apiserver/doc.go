// Package apiserver is the API server: an HTTP server that serves the
// Kubernetes API and is the only client of the store. A request passes the
// chain (chain.go), then the handler of its verb (package endpoints), which
// applies the rules of its kind (package registry).
package apiserver
