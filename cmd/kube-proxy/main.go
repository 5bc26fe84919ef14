// Command kube-proxy is the node's network agent.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/proxy"
)

func main() { os.Exit(daemon.Main(proxy.NewCommand())) }
