package cli

import (
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
)

// apiLevel is the Kubernetes version whose API this is: that of our types.
const apiLevel = "v1.36"

// ownVersion is this binary's, from what the Go tool wrote into it.
func ownVersion() version.Info {
	info := version.Info{
		Major: "1", Minor: "36", GitVersion: apiLevel + ".0+podium",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = "clean"
			if s.Value == "true" {
				info.GitTreeState = "dirty"
			}
		}
	}
	return info
}
