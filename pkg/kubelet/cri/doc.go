// Package cri connects the kubelet to the container runtime: the CRI v1 clients,
// the connection to a runtime's socket, and the labels and annotations by which
// the kubelet recognizes its sandboxes and containers.
package cri
