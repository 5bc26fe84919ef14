package pods

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// linked runs a test on a node that links to the logs of containers in the directory links.
func linked(t *testing.T, cfg crifake.Config, logs *string, f func(r *rig, links string)) {
	t.Helper()
	bubbleWith(t, cfg, func(r *rig) {
		*logs = filepath.Join(r.dir, "logs")
		r.tweak = func(c *Config) { c.LogLinksDir = filepath.Join(r.dir, "links") }
	}, func(r *rig) { f(r, filepath.Join(r.dir, "links")) })
}

// targets returns where the links in a directory lead, below logs.
func (r *rig) targets(links, logs string) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, name := range names(r.t, filepath.Join(links, "*")) {
		to, err := os.Readlink(filepath.Join(links, name))
		if err != nil {
			r.t.Fatal(err)
		}
		out[name] = strings.TrimPrefix(to, logs+"/")
	}
	return out
}

// Each container of the runtime that has a log has a link to it.
func TestLogsHaveLinks(t *testing.T) {
	var logs string
	linked(t, crashing(&logs), &logs, func(r *rig, links string) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		if got := r.targets(links, logs); len(got) != 2 { // it has been restarted once
			r.t.Errorf("at first the links are %q", got)
		}
		r.pass(time.Minute)
		want := map[string]string{}
		for _, c := range r.runtime.Containers() {
			want["a_default_app-"+c.ID+".log"] = "default_a_uid-a/app/" + string(rune('0'+c.Attempt)) + ".log"
		}
		if got := r.targets(links, logs); len(got) != 2 || !maps.Equal(got, want) {
			r.t.Errorf("links %q, want %q", got, want)
		}
		r.api.deleteGracefully("a", 1)
		r.pass(10 * time.Second)
		if got := r.targets(links, logs); len(got) > 0 {
			r.t.Errorf("of a deleted pod there are %q", got)
		}
	})
}

// A log may appear after its container has been started; a link that leads nowhere is removed
// if it is one of these.
func TestLinksFollowLogs(t *testing.T) {
	var logs string
	linked(t, crifake.Config{}, &logs, func(r *rig, links string) {
		r.api.create(newPod("a"))
		r.pass(time.Second)
		if got := names(r.t, filepath.Join(links, "*")); len(got) > 0 {
			r.t.Errorf("without logs there are %q", got)
		}
		err := errors.Join(
			os.WriteFile(filepath.Join(logs, "default_a_uid-a/app/0.log"), nil, 0o640), os.MkdirAll(links, 0o755),
			os.Symlink(logs+"/default_b_uid-b/app/0.log", links+"/b_default_app-1.log"), os.Symlink(r.dir+"/elsewhere", links+"/other.log"),
		)
		if err != nil {
			r.t.Fatal(err)
		}
		r.pass(linkPeriod)
		want := []string{"a_default_app-" + r.container("a", "app").ID + ".log", "other.log"}
		if got := names(r.t, filepath.Join(links, "*")); !slices.Equal(got, want) {
			r.t.Errorf("links %q, want %q", got, want)
		}
		log := filepath.Join(logs, "default_a_uid-a/app/0.log")
		if err := os.Rename(log, log+".rotated"); err != nil {
			r.t.Fatal(err)
		}
		r.pass(linkPeriod)
		if got := names(r.t, filepath.Join(links, "*")); !slices.Equal(got, want) {
			r.t.Errorf("while a log is rotated the links are %q, want %q", got, want)
		}
	})
}

// The longest names that objects may have make links whose names are different, and not too
// long for the file system.
func TestLinksOfLongNames(t *testing.T) {
	pod := logged{pod: strings.Repeat("p", 253), namespace: strings.Repeat("n", 63), container: strings.Repeat("c", 63), id: strings.Repeat("0", 64)}
	other := pod
	other.id = strings.Repeat("1", 64)
	for _, c := range []logged{pod, other} {
		want := strings.Repeat("p", 58) + "_" + c.namespace + "_" + c.container + "-" + c.id + ".log"
		if got := c.link(); got != want || len(got) != maxFileName {
			t.Errorf("%d bytes: %s, want %s", len(got), got, want)
		}
	}
	var logs string
	linked(t, crifake.Config{}, &logs, func(r *rig, links string) {
		r.api.create(newPod(strings.Repeat("p", 200), func(p *corev1.Pod) { p.UID = "uid" }))
		r.pass(time.Second)
		if err := os.WriteFile(filepath.Join(logs, "default_"+strings.Repeat("p", 200)+"_uid", "app", "0.log"), nil, 0o640); err != nil {
			r.t.Fatal(err)
		}
		r.pass(linkPeriod)
		if got := names(r.t, filepath.Join(links, "*")); len(got) != 1 || len(got[0]) != maxFileName {
			r.t.Errorf("links %q", got)
		}
	})
}
