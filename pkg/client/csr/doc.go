// Package csr holds what requesters, approvers and signers of certificate signing
// requests share: the PEM encoding, the rules of kubernetes.io's signers, and
// Obtain, which turns a key into a signed certificate.
package csr
