// Package cri is the kubelet's door to the container runtime: the CRI v1
// clients, the connection to a runtime's socket, and the labels and annotations
// by which the kubelet finds its own sandboxes and containers again.
package cri
