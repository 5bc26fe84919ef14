// Package stats measures the node and its pods for the kubelet's /stats/summary,
// /metrics/resource and /metrics/cadvisor, and the volumes of claims for /metrics.
package stats
