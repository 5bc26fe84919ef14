package workloads

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"podium/test/e2e/docked"
)

const (
	name  = "e2e-workloads"
	plane = name + "-control-plane"
)

var workers = []string{name + "-worker", name + "-worker2", name + "-worker3"}

// the is the cluster of all tests.
var the *docked.Cluster

func TestMain(m *testing.M) {
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "workloads:", err)
		code = 1
	}
	os.Exit(code)
}

func withCluster(tests func() int) (int, error) {
	dir, err := os.MkdirTemp("", "podium-workloads-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	the = docked.New(name, dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	return the.Run(ctx, "", []string{name, "--workers", "3", "--wait", "5m"}, func() (int, error) { return tests(), nil })
}
