// Package certrotation tests a cluster's certificates over several years: a real API server, the
// controllers that approve and sign, and a node's own certificates, all over TLS and in virtual
// time.
package certrotation
