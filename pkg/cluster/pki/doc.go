// Package pki makes a cluster's identities: the certificate authority, the
// certificates of its daemons and people, the key that signs service account
// tokens, and the one that Secrets are encrypted with. Files are PEM; private keys are written with mode 0600.
package pki
