package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestReadEnds reads files in place of devices.
func TestReadEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "device")
	if err := readEnds(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no device: error %v", err)
	}
	for size, want := range map[int64]string{0: "it has no size", 512: "", 1 << 20: ""} {
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
			t.Fatal(err)
		}
		if err := readEnds(file); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("size %d: error %v, want %q", size, err, want)
		}
	}
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
