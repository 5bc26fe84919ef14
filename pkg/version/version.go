package version

import (
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
)

// The Kubernetes whose API and behaviour this is: the version of our types.
const (
	Major      = "1"
	Minor      = "36"
	Kubernetes = "v" + Major + "." + Minor + ".6"
)

// build is which build this is, as .COMMITS.COMMIT: the linker sets it (make
// build), and it is empty elsewhere.
var build string

// Podium is what every daemon and the CLI call themselves.
var Podium = Kubernetes + "+podium" + build

// Info is what /version and `podium version` show: Podium, and what the Go tool
// noted about this binary.
func Info() version.Info {
	build, _ := debug.ReadBuildInfo()
	return infoOf(build)
}

// infoOf takes nil for a binary without notes.
func infoOf(build *debug.BuildInfo) version.Info {
	info := version.Info{
		Major: Major, Minor: Minor, GitVersion: Podium, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build == nil {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				info.GitTreeState = "dirty"
			}
		}
	}
	return info
}
