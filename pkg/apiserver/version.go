package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"

	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"podium/pkg/apiserver/wire"
)

// The Kubernetes version whose API this is.
const (
	apiMajor   = "1"
	apiMinor   = "36"
	apiVersion = "v1.36.6"
)

// Version is what /version says.
func Version() apimachineryversion.Info {
	info := apimachineryversion.Info{
		Major: apiMajor, Minor: apiMinor, GitVersion: apiVersion + "+podium",
		GitTreeState: "clean", GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
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
			if s.Value == "true" {
				info.GitTreeState = "dirty"
			}
		}
	}
	return info
}

func serveVersion(w http.ResponseWriter, r *http.Request) {
	writePlainJSON(w, r, Version())
}

// serveIndex lists the server's pages.
func (s *Server) serveIndex(w http.ResponseWriter, r *http.Request) {
	paths := map[string]bool{"/healthz": true, "/livez": true, "/readyz": true, "/metrics": true, "/version": true}
	for path := range s.disco.Paths() {
		paths[path] = true
	}
	if s.openapi != nil {
		paths["/openapi/v2"], paths["/openapi/v3"] = true, true
	}
	writePlainJSON(w, r, map[string]any{"paths": slices.Sorted(maps.Keys(paths))})
}

func writePlainJSON(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		wire.WriteError(w, r, fmt.Errorf("encode %T: %w", v, err))
		return
	}
	wire.WriteText(w, r, http.StatusOK, "application/json", text)
}
