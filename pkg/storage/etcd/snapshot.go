package etcd

import (
	"context"
	"crypto/sha256"
	"io"

	"go.etcd.io/etcd/server/v3/storage/backend"
)

// snapshot streams the present database of a member, followed by its SHA-256, in
// the format of etcd's Snapshot RPC. ctx bounds the whole stream.
func snapshot(ctx context.Context, be backend.Backend) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })()
		snap := be.Snapshot()
		sum := sha256.New()
		_, err := snap.WriteTo(io.MultiWriter(w, sum))
		if err == nil {
			err = snap.Close()
		} else {
			snap.Close()
		}
		if err == nil {
			_, err = w.Write(sum.Sum(nil))
		}
		w.CloseWithError(err)
	}()
	return r
}
