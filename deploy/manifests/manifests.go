// Package manifests holds what a cluster runs beside its daemons, as files
// that kubectl applies as they are.
package manifests

import _ "embed" // ClusterDNS is the file's content

// ClusterDNS is cluster-dns.yaml, for the domain cluster.local and the Service
// address 10.96.0.10.
//
//go:embed cluster-dns.yaml
var ClusterDNS []byte
