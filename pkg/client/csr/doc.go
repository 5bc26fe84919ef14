// Package csr is what is common to all who ask for a certificate through the
// API and to all who judge such a request: its text, its shape, and the way
// from a key to a signed certificate.
package csr
