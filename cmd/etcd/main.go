// Command etcd is upstream's etcd, at the version of our client.
package main

import (
	"log/slog"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"golang.org/x/sys/unix"

	"podium/pkg/daemon/memory"
)

func main() {
	unix.Umask(0o077) // etcd creates snapshots with mode 0666 before the umask
	memory.SetLimit(slog.Default())
	etcdmain.Main(os.Args)
}
