// Package streams proves exec, attach, port-forward and logs from end to end:
// client, apiserver, kubelet, and a container runtime's streaming server.
package streams
