package version

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/version"
)

// The k8s.io modules have version v0.MINOR.PATCH for the release v1.MINOR.PATCH.
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

// The linker sets the variables of the build: the Makefile names all of them.
func TestInfoOfALinkedBinary(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*string{"build": &build, "commit": &commit, "date": &date, "tree": &tree} {
		if !strings.Contains(string(makefile), "$(IN_VERSION)."+name+"=") {
			t.Errorf("the Makefile does not set %s", name)
		}
		before := *v
		t.Cleanup(func() { *v = before })
		*v = "the " + name
	}
	want := version.Info{
		Major: "1", Minor: Minor, GitVersion: Podium, GitCommit: "the commit", BuildDate: "the date", GitTreeState: "the tree",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if diff := cmp.Diff(want, Info()); diff != "" {
		t.Error(diff)
	}
}
