package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Store is a multi-version map from key to value. Every successful write creates
// one new revision, counted over the whole store. All methods are safe for
// concurrent use; all reads include every write that was acknowledged before them.
// Values are shared with the store: callers must not modify them, neither those
// they pass nor those they receive.
type Store interface {
	// Get returns the present value of key, or ErrNotFound.
	Get(ctx context.Context, key string) (KV, error)

	// List returns the values under a prefix, in the order of their keys.
	List(ctx context.Context, prefix string, opts ListOptions) (Page, error)

	// Create stores a value under a new key and returns the revision of the write.
	// It returns ErrExists if the key exists, ErrTooLarge for a value of MaxValue
	// bytes or more, and an error for an empty value (CheckValue).
	Create(ctx context.Context, key string, value []byte) (int64, error)

	// Update replaces the value that was written at the revision expect and returns
	// the new revision. If another write came first, it returns a *ConflictError
	// with the present state. It limits values as Create does.
	Update(ctx context.Context, key string, value []byte, expect int64) (int64, error)

	// Delete removes the value that was written at the revision expect and returns
	// the revision of the deletion. Conflicts are those of Update.
	Delete(ctx context.Context, key string, expect int64) (int64, error)

	// Watch reports, in order, every write under a prefix with a revision greater
	// than after. If after is below the compacted revision, it returns
	// ErrCompacted, at once or from Next. The watch runs until Stop; ctx bounds
	// only its beginning.
	Watch(ctx context.Context, prefix string, after int64) (Watch, error)

	// Revision returns the latest revision of the store, which is not below that of
	// any write acknowledged before the call.
	Revision(ctx context.Context) (int64, error)

	// Compact discards values that were overwritten or deleted before rev.
	Compact(ctx context.Context, rev int64) error
}

// KV is one stored value.
type KV struct {
	Key      string
	Value    []byte
	Revision int64 // of the write that made this value

	// Stale reports that the value is encrypted with an old key, so that writing
	// the same value again is useful: it is then encrypted with the present key.
	Stale bool
}

// ListOptions restricts a List. The zero value lists everything at the newest
// revision.
type ListOptions struct {
	Revision int64  // read as of this revision; 0: the newest
	After    string // only keys greater than this one; "": all
	Limit    int    // maximum number of values; 0: no limit
}

// Page is the result of a List.
type Page struct {
	KVs       []KV
	Revision  int64 // the revision that was read
	More      bool  // more keys follow the last one
	Remaining int64 // number of keys that follow; -1: unknown
}

// Event is one write reported by a Watch, or a mark.
type Event struct {
	KV // Revision is that of this write; Value is nil if the key was deleted
}

// Deleted reports whether the write removed the key.
func (e *Event) Deleted() bool { return e.Value == nil }

// IsMark reports whether the event is a mark instead of a write: the watch has
// reported everything up to Revision (see Watch.Mark).
func (e *Event) IsMark() bool { return e.Key == "" }

// Watch is a running watch. Next blocks until there are events and returns them in
// revision order, never splitting one revision over two calls. It returns an error
// when the watch has ended: ErrCompacted, the error of the context, or the cause.
// Stop releases the watch; it may be called more than once and while Next blocks.
//
// Mark requests a mark, which etcd calls a progress notification: an Event without
// a key that Next returns once everything up to its revision has been reported.
// That revision is not below the revision of the store at the time of the call.
// Marks show that the writes a caller waits for were outside the watched prefix.
// The request may get lost, so callers repeat it; marks may also arrive without a
// request. The error wraps errors.ErrUnsupported if the store does not support
// marks.
type Watch interface {
	Next(ctx context.Context) ([]Event, error)
	Mark(ctx context.Context) error
	Stop()
}

// MaxValue is the size in bytes from which on a value is rejected: etcd accepts
// requests of 1.5 MiB, which include the key and the transaction around the value.
const MaxValue = 1400 << 10

// An encrypted value begins with Sealed and may exceed MaxValue by maxOverhead
// bytes, for nonces, padding and what a key management plugin adds.
const (
	Sealed      = "k8s:enc:"
	maxOverhead = 64 << 10
)

// Errors of a Store; test for them with errors.Is.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("already exists")
	ErrCompacted = errors.New("revision has been compacted")
	ErrFuture    = errors.New("revision is in the future")
	ErrTooLarge  = errors.New("value is too large")

	// ErrUnreadable is returned for a stored value that cannot be decrypted. The
	// whole call fails, because a value left out of a result would look deleted.
	ErrUnreadable = errors.New("value cannot be decrypted")
)

// ConflictError is returned if a value is not at the expected revision.
type ConflictError struct {
	Key     string
	Current *KV // the present state; nil: the key does not exist
}

func (e *ConflictError) Error() string {
	if e.Current == nil {
		return fmt.Sprintf("%s was deleted", e.Key)
	}
	return fmt.Sprintf("%s was changed at revision %d", e.Key, e.Current.Revision)
}

// CheckValue returns an error for a value that no store accepts: one that is too
// large, or an empty one, which would read as a deletion.
func CheckValue(key string, value []byte) error {
	limit := MaxValue
	if bytes.HasPrefix(value, []byte(Sealed)) {
		limit += maxOverhead
	}
	switch {
	case len(value) >= limit:
		return fmt.Errorf("%s: %d bytes, at most %d are allowed: %w", key, len(value), limit-1, ErrTooLarge)
	case len(value) == 0:
		return fmt.Errorf("%s: a value may not be empty", key)
	}
	return nil
}
