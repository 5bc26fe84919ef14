package version

import (
	"runtime"

	"k8s.io/apimachinery/pkg/version"
)

// The Kubernetes version whose API and behaviour this is: that of the k8s.io modules.
const (
	Major      = "1"
	Minor      = "37"
	Kubernetes = "v" + Major + "." + Minor + ".2"
)

// The linker sets what identifies the build (make build); otherwise it is empty.
var (
	build  string // .COMMITS.COMMIT, the commit in its short form
	commit string // of the sources
	date   string // of the commit, as RFC 3339: builds are reproducible
	tree   string // clean, or dirty if files differ from the commit
)

// Podium is the version that all daemons and the CLI report.
var Podium = Kubernetes + "+podium" + build

// Info returns what /version and `podium version` show.
func Info() version.Info {
	return version.Info{
		Major: Major, Minor: Minor, GitVersion: Podium, GitCommit: commit, GitTreeState: tree, BuildDate: date,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
