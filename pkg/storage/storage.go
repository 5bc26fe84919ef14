package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Store is a multi-version map from key to value. Every successful write makes
// one new revision, counted over the whole store. All methods may be called
// concurrently; all reads see every write that was acknowledged before them.
// Values are shared, on the way in and on the way out: nobody modifies them.
type Store interface {
	// Get returns the present value of key, or ErrNotFound.
	Get(ctx context.Context, key string) (KV, error)

	// List returns the values under a prefix, in the order of their keys.
	List(ctx context.Context, prefix string, opts ListOptions) (Page, error)

	// Create stores a value under a key that must not exist (else ErrExists)
	// and returns the revision this made. A value of MaxValue bytes or more
	// is refused with ErrTooLarge, an empty one with an error (CheckValue);
	// so does Update.
	Create(ctx context.Context, key string, value []byte) (int64, error)

	// Update replaces the value that was written at the revision expect and
	// returns the new revision; if another write came first it returns a
	// *ConflictError that carries the present state.
	Update(ctx context.Context, key string, value []byte, expect int64) (int64, error)

	// Delete removes the value that was written at the revision expect and
	// returns the revision of the deletion; conflicts as Update.
	Delete(ctx context.Context, key string, expect int64) (int64, error)

	// Watch reports, in order, every write under a prefix with a revision
	// greater than after; after must not be below the compacted revision
	// (else ErrCompacted, at once or from the Watch). The watch runs until
	// Stop; ctx only bounds its beginning.
	Watch(ctx context.Context, prefix string, after int64) (Watch, error)

	// Revision is the store's latest revision: not below that of any write
	// acknowledged before the call.
	Revision(ctx context.Context) (int64, error)

	// Compact forgets what was overwritten or deleted before rev.
	Compact(ctx context.Context, rev int64) error
}

// KV is one stored value.
type KV struct {
	Key      string
	Value    []byte
	Revision int64 // of the write that made this value

	// Stale says that the value is kept in a form that is to be replaced (under
	// an old key): writing the same value again is not in vain.
	Stale bool
}

// ListOptions narrows a List. The zero value means everything, now.
type ListOptions struct {
	Revision int64  // read as of this revision; 0 is now
	After    string // only keys greater than this one
	Limit    int    // at most so many; 0 is all
}

// Page is the answer to a List.
type Page struct {
	KVs       []KV
	Revision  int64 // the revision the page shows
	More      bool  // there are keys behind the last one
	Remaining int64 // how many, where the store knows; else -1
}

// Event is one write seen by a Watch.
type Event struct {
	KV // Revision is that of this write; Value is nil if the key was deleted
}

// Deleted says that the write removed the key.
func (e *Event) Deleted() bool { return e.Value == nil }

// IsMark says that this is no write but the watch's word that everything up to
// Revision has been reported (see Watch.Mark).
func (e *Event) IsMark() bool { return e.Key == "" }

// Watch is a running watch. Next blocks until there are events, in revision
// order and never splitting one revision over two calls, and returns an error
// when the watch has ended: ErrCompacted, the context's error, or what broke
// it. Stop releases it; it may be called twice and while Next blocks.
//
// Mark asks for a mark: an Event without a key that Next returns soon, once
// everything up to its revision has been reported; that revision is not below
// the store's at the time of the call. It is how one learns that the writes one
// waits for were outside the watched prefix. The request may get lost: ask
// again. Marks also come unasked. The error wraps errors.ErrUnsupported if the
// store cannot do it.
type Watch interface {
	Next(ctx context.Context) ([]Event, error)
	Mark(ctx context.Context) error
	Stop()
}

// MaxValue is the size from which on a value is refused: etcd takes requests
// of 1.5 MiB, and the key and the transaction around the value need room.
const MaxValue = 1400 << 10

// What is encrypted begins with Sealed, and may be that much larger: by
// nonces, padding and what a key management plugin adds.
const (
	Sealed      = "k8s:enc:"
	maxOverhead = 64 << 10
)

// What can go wrong, asked for by errors.Is.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("already exists")
	ErrCompacted = errors.New("revision has been compacted")
	ErrFuture    = errors.New("revision is in the future")
	ErrTooLarge  = errors.New("value is too large")

	// ErrUnreadable is a value that is there but cannot be decrypted, now or
	// ever. It makes the whole call fail: left out, it would look deleted.
	ErrUnreadable = errors.New("value cannot be decrypted")
)

// ConflictError says that a value was not at the expected revision.
type ConflictError struct {
	Key     string
	Current *KV // nil if the key does not exist
}

func (e *ConflictError) Error() string {
	if e.Current == nil {
		return fmt.Sprintf("%s was deleted", e.Key)
	}
	return fmt.Sprintf("%s was changed at revision %d", e.Key, e.Current.Revision)
}

// CheckValue is the error of a value no store takes: too large, or nil, which
// would read as a deletion.
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
