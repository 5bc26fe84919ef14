// Package certificate keeps one of the kubelet's certificates good: it asks
// for it through the API (package csr), keeps it in a file with its key, and
// asks for the next one in time.
//
// It may be killed at any instruction. The key that a certificate is being
// asked for is in a file before the request is in the API, and the request's
// name follows from the key: whoever comes next takes up the same request. A
// certificate is written whole beside the present one; the link to the present
// one is turned in one step.
package certificate
