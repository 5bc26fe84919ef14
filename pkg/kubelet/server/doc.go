// Package server is the kubelet's own HTTPS API, at upstream's paths: logs,
// exec, attach and port-forward (handed to the container runtime's streaming
// server), pods, statistics and metrics.
package server
