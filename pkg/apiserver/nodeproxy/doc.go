// Package nodeproxy connects clients of the API server to nodes: logs, exec,
// attach and port-forward through the pod's kubelet, and the HTTP proxies to
// pods, Services and nodes. Its handlers are the Connect functions of those
// subresources.
package nodeproxy
