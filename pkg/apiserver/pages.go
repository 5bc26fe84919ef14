package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"podium/pkg/apiserver/wire"
	"podium/pkg/version"
)

// serveVersion writes the server's version.
func serveVersion(w http.ResponseWriter, r *http.Request) {
	writePlainJSON(w, r, version.Info())
}

// serveIndex writes the paths that the server serves, as JSON.
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

// writePlainJSON writes v as indented JSON, for people.
func writePlainJSON(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		wire.WriteError(w, r, fmt.Errorf("encode %T: %w", v, err))
		return
	}
	wire.WriteText(w, r, http.StatusOK, "application/json", text)
}

// writeJSON writes v as compact JSON, for programs.
func writeJSON(w http.ResponseWriter, r *http.Request, contentType string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		wire.WriteError(w, r, fmt.Errorf("encode %T: %w", v, err))
		return
	}
	wire.WriteText(w, r, http.StatusOK, contentType, text)
}
