package local

import (
	"context"
	"os"
	"path/filepath"
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

func TestContainerdVersions(t *testing.T) {
	for text, want := range map[string]bool{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1": false,
		"containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da":    false,
		"containerd github.com/containerd/containerd/v2 v2.1.0 061792f0ecf3684fb30a3": true,
	} {
		if got := isVersion2(text); got != want {
			t.Errorf("%s: is it 2.x? got %v", text, got)
		}
	}
}
