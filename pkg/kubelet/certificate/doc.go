// Package certificate keeps one of the kubelet's certificates valid: it
// requests the certificate through the API (package csr), stores it in a file
// with its key, and renews it before it expires.
//
// The process may be killed at any instruction. The private key is in a file
// before the request is created in the API, and the name of the request is
// derived from the key, so that the next process continues with the same
// request. A new certificate is written to a file of its own; then the link to
// the present certificate is replaced atomically.
package certificate
