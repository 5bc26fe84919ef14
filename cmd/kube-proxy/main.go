// Command kube-proxy runs the Service proxy and the pod network of a node.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/proxy"
)

func main() { os.Exit(daemon.Main(proxy.NewCommand())) }
