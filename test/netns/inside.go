package netns

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// packages are Debian's, of the tools that tests of the kernel need.
var packages = map[string]string{"ip": "iproute2", "iptables": "iptables", "iptables-restore": "iptables", "ip6tables": "iptables"}

// Inside runs the calling test again in a network namespace of its own, where
// nobody is disturbed and only the loopback interface is, up. It says true in
// there; the caller outside has nothing left to do. A mount namespace comes
// with it, so that /run/netns is the test's, too.
func Inside(t *testing.T, tools ...string) bool {
	t.Helper()
	const mark = "PODIUM_TEST_IN_NETNS"
	if os.Getenv(mark) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("loopback: %v: %s", err, out)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	for _, tool := range append(tools, "ip") {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s (Debian's package: %s)", tool, packages[tool])
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "--- ") {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	t.Logf("in its own network namespace:\n%s", out)
	if err != nil {
		t.Fatal("failed in its network namespace")
	}
	return false
}
