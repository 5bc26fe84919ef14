package cloud

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"podium/test/e2e/docked"
)

// The shared cluster: a control plane and two workers.
const (
	clusterName = "e2e-cloud"
	plane       = clusterName + "-control-plane"
	worker1     = clusterName + "-worker"
	worker2     = clusterName + "-worker2"
)

const config = `
apiVersion: config.podium.dev/v1alpha1
kind: Cluster
metadata: {name: ` + clusterName + `}
cloudProvider: docker
networking: {podNetwork: cloud}
nodes: [{role: control-plane}, {role: worker, zone: east}, {role: worker, zone: west}]
`

// the is the shared cluster.
var the cluster

type cluster struct{ *docked.Cluster }

func TestMain(m *testing.M) {
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cloud:", err)
		code = 1
	}
	os.Exit(code)
}

func withCluster(tests func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "podium-cloud-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	the = cluster{docked.New(clusterName, dir)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	return the.Run(ctx, config, []string{"--config", "-", "--wait", "3m", "--retain"}, func() (int, error) { return tests(), nil })
}

// get requests a page from a web server on port 80, each time on a new connection.
func get(ctx context.Context, host, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, "80")+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(text)), err
}
