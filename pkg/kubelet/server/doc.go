// Package server implements the kubelet's HTTPS API with upstream's paths: logs,
// exec, attach and port-forward (proxied to the container runtime's streaming
// server), pods, statistics and metrics.
package server
