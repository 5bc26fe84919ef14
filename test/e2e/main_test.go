package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// inside is the environment variable that tells the second process that it runs in the
// namespace that the first one created.
const inside = "PODIUM_E2E_INSIDE"

const nodeIP = "10.99.0.1"

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(outer())
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		flag.Set("test.parallel", "4") // the tests mostly wait, but starting containers takes CPU
	}
	code, err := withCluster(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// outer runs this program again in a new network namespace. Only the network is isolated:
// cgroups and mounts are the machine's, and are cleaned up.
func outer() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "e2e: containers need root; run as root")
		return 1
	}
	name := fmt.Sprintf("podium-e2e-%d", os.Getpid())
	setup := [][]string{
		{"ip", "netns", "add", name},
		{"ip", "-n", name, "link", "set", "lo", "up"},
		// The node's address, and a default route: without one the kernel refuses a
		// Service's address before any rule can translate it.
		{"ip", "-n", name, "link", "add", "uplink", "type", "veth", "peer", "name", "nowhere"},
		{"ip", "-n", name, "link", "set", "uplink", "addrgenmode", "none"},
		{"ip", "-n", name, "link", "set", "nowhere", "addrgenmode", "none"},
		{"ip", "-n", name, "addr", "add", nodeIP + "/24", "dev", "uplink"},
		{"ip", "-n", name, "link", "set", "uplink", "up"},
		{"ip", "-n", name, "link", "set", "nowhere", "up"},
		{"ip", "-n", name, "route", "add", "default", "via", "10.99.0.254"},
	}
	defer exec.Command("ip", "netns", "delete", name).Run()
	for _, args := range setup {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: %s: %v: %s\n", strings.Join(args, " "), err, out)
			return 1
		}
	}
	cmd := exec.Command("nsenter", append([]string{"--net=/var/run/netns/" + name, os.Args[0]}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return 0
}

// the is the cluster that all tests of this package share.
var the *cluster

// withCluster creates a cluster, runs the tests, and deletes it.
func withCluster(tests func() int) (code int, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "podium-e2e-")
	if err != nil {
		return 1, err
	}
	the = &cluster{root: root, dir: filepath.Join(dir, "cluster")}
	network, err := networkState()
	if err != nil {
		return 1, err
	}
	defer func() {
		if code != 0 || err != nil {
			the.keepLogs()
		}
		err = errors.Join(err, the.end(network), os.RemoveAll(dir))
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := the.create(ctx); err != nil {
		return 1, err
	}
	roles, err := watchRoles(the)
	if err != nil {
		return 1, err
	}
	code = tests()
	problems := roles.finish(the)
	if code != 0 || !wholeSuite() {
		return code, nil
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, "e2e:", p)
		code = 1
	}
	return code, nil
}

// end deletes the cluster and returns an error for everything that it has left behind.
func (c *cluster) end(network []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	traces, err := c.traces(ctx, network)
	if end := c.delete(ctx); end != nil || err != nil {
		return errors.Join(err, end)
	}
	return traces.left()
}
