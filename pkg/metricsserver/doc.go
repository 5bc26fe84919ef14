// Package metricsserver is the metrics-server: it asks the kubelet of every node what the
// node and its containers use, and serves the answer as the API metrics.k8s.io/v1beta1,
// which kubectl top and the HorizontalPodAutoscaler read.
//
// Each node has a worker (scraper), which puts samples into a usage.Store; package api
// serves them. Without a certificate file, the server makes its own serving certificate
// and publishes it in the caBundle of its APIService (identity).
package metricsserver
