package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"go.etcd.io/etcd/server/v3/storage/backend"
)

// snapshots makes snapshots of a member's database until it is closed. Close it before
// the member: etcd ends the process when a snapshot begins on a closed database, and
// waits for those that have begun.
type snapshots struct {
	database func() backend.Backend
	ended    context.Context
	end      context.CancelCauseFunc

	mu sync.RWMutex // held while a snapshot begins
}

var errClosed = errors.New("the store is closed")

func newSnapshots(database func() backend.Backend) *snapshots {
	s := &snapshots{database: database}
	s.ended, s.end = context.WithCancelCause(context.Background())
	return s
}

// open streams the present database, followed by its SHA-256, in the format of etcd's
// Snapshot RPC. ctx bounds the whole stream.
func (s *snapshots) open(ctx context.Context) (io.ReadCloser, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended.Err() != nil {
		return nil, errClosed
	}
	snap := s.database().Snapshot()
	r, w := io.Pipe()
	go func() {
		for _, ctx := range []context.Context{ctx, s.ended} {
			defer context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })()
		}
		w.CloseWithError(send(w, snap))
	}()
	return r, nil
}

// send writes a snapshot and its checksum, and closes the snapshot.
func send(w io.Writer, snap backend.Snapshot) error {
	sum := sha256.New()
	_, err := snap.WriteTo(io.MultiWriter(w, sum))
	if err := errors.Join(err, snap.Close()); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// close ends all snapshots, whose readers get errClosed.
func (s *snapshots) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(errClosed)
	return nil
}
