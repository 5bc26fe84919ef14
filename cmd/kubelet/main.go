// Command kubelet runs the pods that are bound to its node.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/kubelet"
)

func main() { os.Exit(daemon.Main(kubelet.NewCommand())) }
