// Command etcdutl is upstream's tool for etcd's files, at the version of our
// server. podium restore runs it.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
)

func main() {
	cmd := &cobra.Command{Use: "etcdutl", Short: "Work on etcd's files while etcd does not run"}
	cmd.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "how to print: fields, json, protobuf, simple or table")
	cmd.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewDefragCommand(), etcdutl.NewHashKVCommand(), etcdutl.NewVersionCommand())
	if cmd.Execute() != nil {
		os.Exit(1) // cobra has printed the error
	}
}
