package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRun runs real programs: one that fails, one that is missing, and one whose child
// must not outlive it.
func TestRun(t *testing.T) {
	out, err := run(t.Context(), "sh", "-c", "echo said; exit 3", "secret")
	if out != "said\n" || !exited(err, 3) || err.Error() != "sh: exit status 3: said" {
		t.Errorf("a failure: %q, error %v", out, err)
	}
	if _, err := run(t.Context(), "podium-has-no-such-program"); err == nil || !strings.Contains(err.Error(), "is not installed on the node") {
		t.Errorf("a missing program: error %v", err)
	}
	if err := missing("iscsiadm"); !strings.Contains(err.Error(), "install open-iscsi") {
		t.Errorf("without iscsiadm: %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	out, err = run(ctx, "sh", "-c", "sleep 600 & echo $!; wait")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a program that hangs: error %v", err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	// The child is killed with its parent, but init reaps it a little later.
	for end := time.Now().Add(10 * time.Second); syscall.Kill(child, 0) == nil && !zombie(child); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the program's child runs on")
		}
	}
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
