// Command kube-apiserver serves the Kubernetes API.
package main

import (
	"os"

	"podium/pkg/apiserver"
	"podium/pkg/daemon"
)

func main() { os.Exit(daemon.Main(apiserver.NewCommand())) }
