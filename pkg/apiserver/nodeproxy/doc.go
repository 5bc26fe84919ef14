// Package nodeproxy is the apiserver's way to the nodes: logs, exec, attach
// and port-forward through a pod's kubelet, and the HTTP proxies to pods,
// services and nodes. Its handlers are the Connect functions of those
// subresources.
package nodeproxy
