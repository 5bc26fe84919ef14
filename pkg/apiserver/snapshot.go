package apiserver

import (
	"fmt"
	"io"
	"net/http"

	"podium/pkg/apiserver/wire"
)

// serveSnapshot streams everything that is stored, secrets too (encrypted
// where the store holds them so): it is for those who are allowed to get this
// very path. Behind the database come the 32 bytes of its SHA-256; without
// them the copy is not whole.
func (s *Server) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	snapshot, err := s.cfg.Snapshot(r.Context())
	if err != nil {
		wire.WriteError(w, r, fmt.Errorf("begin a snapshot of the store: %w", err))
		return
	}
	defer snapshot.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := io.Copy(w, snapshot); err != nil {
		s.cfg.Log.Warn("a snapshot was not sent whole", "to", r.RemoteAddr, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun: only cutting it off shows that it is not whole
	}
}
