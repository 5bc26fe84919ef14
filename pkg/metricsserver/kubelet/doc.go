// Package kubelet reads what a node and its containers use from the kubelet's
// /metrics/resource.
package kubelet
