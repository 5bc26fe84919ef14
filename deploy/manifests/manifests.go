// Package manifests holds what a cluster runs beside its daemons, as files
// that kubectl applies as they are.
package manifests

import _ "embed" // the contents of the files

// ClusterDNS is cluster-dns.yaml, for the domain cluster.local and the Service
// address 10.96.0.10.
//
//go:embed cluster-dns.yaml
var ClusterDNS []byte

// MetricsServer is metrics-server.yaml, without the ConfigMap kubelet-serving-ca.
//
//go:embed metrics-server.yaml
var MetricsServer []byte

// LocalPath is local-path.yaml.
//
//go:embed local-path.yaml
var LocalPath []byte
