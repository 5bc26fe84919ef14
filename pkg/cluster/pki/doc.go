// Package pki creates a cluster's keys and certificates: the CAs, the
// certificates of daemons and users, the key that signs service account tokens,
// and the key that encrypts Secrets. Files are in PEM format except the
// encryption configuration; private keys have mode 0600.
package pki
