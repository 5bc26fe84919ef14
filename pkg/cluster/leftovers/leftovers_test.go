package leftovers

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestEndShims(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "containerd-shim-of-this-test")
	if err := os.Symlink("/bin/sh", program); err != nil {
		t.Fatal(err)
	}
	start := func(socket string) *exec.Cmd {
		cmd := exec.Command(program, "-c", "read line", "-address", socket)
		if _, err := cmd.StdinPipe(); err != nil { // it waits for what never comes
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	mine, others := filepath.Join(dir, "mine.sock"), filepath.Join(dir, "others.sock")
	lost, other := start(mine), start(others)
	go lost.Wait()

	if err := EndShims(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if left, err := shims(mine); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := shims(others); err != nil || !slices.Equal(left, []int{other.Process.Pid}) {
		t.Errorf("of another runtime there are %v, %v; want the one that was there", left, err)
	}
}
