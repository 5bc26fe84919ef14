package version

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/version"
)

// Our types are modules v0.MINOR.PATCH of the release v1.MINOR.PATCH.
func TestTheVersionIsThatOfOurTypes(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	types := regexp.MustCompile(`k8s\.io/api v0(\.[0-9]+\.[0-9]+)`).FindSubmatch(text)
	if types == nil || "v1"+string(types[1]) != Kubernetes {
		t.Errorf("go.mod has %q, we say %s", types, Kubernetes)
	}
}

func TestInfo(t *testing.T) {
	same := version.Info{
		Major: "1", Minor: Minor, GitVersion: Kubernetes + "+podium", GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	built := same
	built.GitCommit, built.BuildDate, built.GitTreeState = "abc", "2026-01-02T03:04:05Z", "dirty"
	for name, test := range map[string]struct {
		build *debug.BuildInfo
		want  version.Info
	}{
		"no notes in the binary": {nil, same},
		"built in a changed checkout": {&debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
		}}, built},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, infoOf(test.build)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
