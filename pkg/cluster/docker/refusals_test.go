package docker

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// TestWithoutDocker checks that the error says what to install, and names the
// alternative.
func TestWithoutDocker(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Create(t.Context(), Options{Cluster: cluster(t), Kubeconfig: filepath.Join(t.TempDir(), "config")})
	want := "engine, image and name checked: docker is not installed\n" +
		"    → install an engine and its command line (Debian: apt-get install docker.io), or make a cluster without: podium cluster create --provider local"
	if d := cmp.Diff(want, fmt.Sprint(err)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestAnEngineThatRefusesACapability checks that creation retries without the
// capability; if the engine refuses more, creation fails and removes
// everything.
func TestAnEngineThatRefusesACapability(t *testing.T) {
	const complaint = "OCI runtime create failed: unable to apply caps: operation not permitted"
	f := &engine{fails: map[string]string{"run": complaint}}
	o := Options{Image: "node:v1", Cluster: cluster(t), Engine: f.engine()}
	nodes, err := o.nodes()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.run(t.Context(), nodes[0], false); err == nil || !strings.Contains(err.Error(), "with all capabilities but CAP_SYS_RESOURCE") {
		t.Errorf("got %v", err)
	}
	runs := f.told("run")
	if len(runs) != 2 || strings.Contains(runs[0], "--cap-drop SYS_RESOURCE") || !strings.Contains(runs[1], "--cap-drop SYS_RESOURCE") {
		t.Errorf("the engine was asked for %q", runs)
	}
	if removed := f.told("rm"); len(removed) != 1 {
		t.Errorf("what the first try had made: %q", removed)
	}

	f = &engine{answers: map[string]string{"network ls": "n1\n"}, fails: map[string]string{"run": complaint}}
	err = Create(t.Context(), Options{Cluster: cluster(t), Kubeconfig: filepath.Join(t.TempDir(), "config"), Engine: f.engine()})
	if err == nil || !strings.Contains(err.Error(), "what was made is removed") {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff([]string{"network rm n1"}, f.told("network rm")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestAnEngineThatCannotFreeze checks that Pause asks again, but not for ever, and
// not after other errors.
func TestAnEngineThatCannotFreeze(t *testing.T) {
	for complaint, want := range map[string]int{"OCI runtime pause failed: unable to freeze: unknown": freezeTries, "permission denied": 1} {
		synctest.Test(t, func(t *testing.T) {
			f := &engine{answers: map[string]string{psFormat: "ci-worker|ci|worker|running|i\n"}, fails: map[string]string{"pause": complaint}}
			e := f.engine()
			if err := e.Pause(t.Context(), "ci-worker"); err == nil || !strings.Contains(err.Error(), complaint) {
				t.Errorf("got %v", err)
			}
			if got := len(f.told("pause")); got != want {
				t.Errorf("%s: the engine was asked %d times, want %d", complaint, got, want)
			}
		})
	}
}
