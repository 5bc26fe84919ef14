// Package certificates is three admission plugins about certificate signing
// requests: CertificateApproval and CertificateSigning want of those who
// approve or sign the permission to do so for the signer in question (verb
// approve or sign on signers of certificates.k8s.io, by the signer's name or by
// its domain and /*); CertificateSubjectRestriction refuses requests that would
// make somebody an administrator.
package certificates
