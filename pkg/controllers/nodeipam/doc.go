// Package nodeipam assigns each node a subnet of the cluster's pod address range, once: it
// never changes spec.podCIDR. After a restart it reads the assigned subnets from the nodes.
package nodeipam
