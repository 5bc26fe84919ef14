// Package drills rehearses what happens to a cluster's certificates over the
// years: a real API server, the controllers that approve and sign, a node's
// own certificates, all over TLS and in virtual time.
package drills
