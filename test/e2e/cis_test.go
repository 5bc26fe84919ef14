package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// TestBenchmarkOfCIS: a new cluster passes the checks of the CIS benchmark
// that apply to it.
func TestBenchmarkOfCIS(t *testing.T) {
	cmd := exec.Command("go", "run", "./hack/cis", "-dir", the.dir)
	cmd.Dir = the.root
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "FAIL") || strings.Count(string(out), "\n") < 50 {
		t.Errorf("%v\n%s", err, out)
	}
}
