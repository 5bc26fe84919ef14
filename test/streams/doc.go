// Package streams tests exec, attach, port-forward and logs from end to end: client, API server,
// kubelet, and a container runtime's streaming server.
package streams
