package multinode

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"podium/test/e2e/arguments"
	"podium/test/e2e/docked"
)

// mainCluster is the cluster that most tests share: a control plane and two workers.
const mainCluster = "e2e-multinode"

// The shared cluster's nodes.
const (
	plane   = mainCluster + "-control-plane"
	worker1 = mainCluster + "-worker"
	worker2 = mainCluster + "-worker2"
)

// the is the shared cluster.
var the cluster

// whileCreated are the command lines of all processes while the shared cluster was created.
var whileCreated *arguments.Watch

type cluster struct{ *docked.Cluster }

func TestMain(m *testing.M) {
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "multinode:", err)
		code = 1
	}
	os.Exit(code)
}

// withCluster creates the shared cluster, runs the tests, deletes it, and checks that nothing is
// left.
func withCluster(tests func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "podium-multinode-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	the = cluster{docked.New(mainCluster, dir)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	whileCreated = arguments.Start()
	var made traces
	code, err = the.Run(ctx, "", []string{the.Name, "--workers", "2", "--wait", "3m", "-v", "--retain"}, func() (int, error) {
		if made, err = the.traces(ctx); err != nil {
			return 1, err
		}
		return tests(), nil
	})
	if err != nil {
		return 1, err
	}
	return code, made.left(ctx)
}
