// Command podium controls Kubernetes clusters, and creates and deletes them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"podium/pkg/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Main(ctx, cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}
