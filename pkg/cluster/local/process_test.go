package local

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func sleeper(t *testing.T) (*Config, process) {
	t.Helper()
	c := &Config{Dir: t.TempDir()}
	p := process{name: "sleeper", args: []string{"/bin/sleep", "60"}}
	t.Cleanup(func() { c.stop(context.Background(), p.name) })
	return c, p
}

func (c *Config) pid(t *testing.T, name string) int {
	t.Helper()
	r, err := c.running(name)
	if err != nil || r == nil {
		t.Fatalf("%s does not run: %v", name, err)
	}
	return r.PID
}

func TestStartLeavesAloneWhatFitsAndReplacesTheRest(t *testing.T) {
	c, p := sleeper(t)
	ctx := t.Context()
	if err := c.start(ctx, p); err != nil {
		t.Fatal(err)
	}
	first := c.pid(t, p.name)
	if err := c.start(ctx, p); err != nil {
		t.Fatal(err)
	}
	if again := c.pid(t, p.name); again != first {
		t.Errorf("a process that fits was replaced: %d, then %d", first, again)
	}
	p.args = []string{"/bin/sleep", "61"}
	if err := c.start(ctx, p); err != nil {
		t.Fatal(err)
	}
	if changed := c.pid(t, p.name); changed == first {
		t.Error("a process with other arguments was kept")
	}
	if err := c.stop(ctx, p.name); err != nil {
		t.Fatal(err)
	}
	if r, err := c.running(p.name); err != nil || r != nil {
		t.Errorf("after stop: %v, %v", r, err)
	}
}

func TestAReusedPidIsNotOurs(t *testing.T) {
	c, p := sleeper(t)
	if err := c.start(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	r, err := c.running(p.name)
	if err != nil {
		t.Fatal(err)
	}
	stranger := *r
	stranger.PID, stranger.Started = os.Getpid(), "1"
	if err := writeJSON(c.pidFile("stranger"), stranger); err != nil {
		t.Fatal(err)
	}
	if r, err := c.running("stranger"); err != nil || r != nil {
		t.Errorf("a process that began at another time was taken for ours: %v, %v", r, err)
	}
}

func TestCreateRefusesAFolderThatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: dir, NodeIP: "127.0.0.1"}
	if err := Create(t.Context(), cfg); err == nil {
		t.Error("created a cluster among someone's files")
	}
	if err := Delete(t.Context(), cfg); err != nil {
		t.Errorf("delete of what is not there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis.txt")); err != nil {
		t.Errorf("delete removed someone's files: %v", err)
	}
}

func TestDaemonsArePreferredToPods(t *testing.T) {
	c, p := sleeper(t)
	p.priority = true
	if err := c.start(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, c.pid(t, p.name))
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("raising a priority needs root")
	}
	if got := 20 - raw; got != niceness {
		t.Errorf("niceness %d, want %d", got, niceness)
	}
	if own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err != nil || 20-own == niceness {
		t.Errorf("the caller keeps niceness %d, %v", 20-own, err)
	}
}
