package apiserver

import (
	"fmt"
	"io"
	"net/http"

	"podium/pkg/apiserver/wire"
)

// serveSnapshot streams a copy of the store, followed by the 32 bytes of its
// SHA-256; without them the copy is truncated. The copy contains all Secrets,
// encrypted only as the store holds them, so permission to get this path
// exposes them.
func (s *Server) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	snapshot, err := s.cfg.Snapshot(r.Context())
	if err != nil {
		wire.WriteError(w, r, fmt.Errorf("begin a snapshot of the store: %w", err))
		return
	}
	defer snapshot.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := io.Copy(w, snapshot); err != nil {
		s.cfg.Log.Warn("send snapshot failed", "to", r.RemoteAddr, "error", err)
		panic(http.ErrAbortHandler) // the response has begun: only aborting it shows that it is truncated
	}
}
