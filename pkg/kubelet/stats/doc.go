// Package stats measures the node and its pods: what /stats/summary,
// /metrics/resource and /metrics/cadvisor of the kubelet tell.
package stats
