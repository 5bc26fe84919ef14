// podium drives a cluster, and brings clusters up and down.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"podium/pkg/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd := cli.NewCommand(cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
