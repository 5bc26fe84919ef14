// Command kube-apiserver serves the Kubernetes API.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"podium/pkg/apiserver"
	"podium/pkg/daemon"
)

func main() {
	unix.Umask(0o077) // the embedded etcd writes snapshots with whatever mode that leaves
	os.Exit(daemon.Main(apiserver.NewCommand()))
}
