// Package api serves metrics.k8s.io/v1beta1: NodeMetrics and PodMetrics, which can be read
// and listed only, with their discovery and OpenAPI documents.
package api
