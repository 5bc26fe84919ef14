package encryption

import (
	"context"
	"errors"

	"podium/pkg/storage"
)

// Store is a storage.Store of decrypted values over one whose values are encrypted
// with the keyring. If a value cannot be decrypted, the whole call fails with
// storage.ErrUnreadable, because a value left out of the result would look deleted.
type Store struct {
	inner storage.Store
	keys  *Keyring
}

var _ storage.Store = (*Store)(nil)

// Wrap returns the decrypted view of a store.
func (k *Keyring) Wrap(inner storage.Store) *Store { return &Store{inner, k} }

// plain decrypts a value that was read from the store, in place.
func (s *Store) plain(ctx context.Context, kv *storage.KV) error {
	value, stale, err := s.keys.rules().of(kv.Key).open(ctx, kv.Value, kv.Key)
	if err != nil {
		return err
	}
	kv.Value, kv.Stale = value, stale
	return nil
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.KV, error) {
	kv, err := s.inner.Get(ctx, key)
	if err != nil {
		return kv, err
	}
	if err := s.plain(ctx, &kv); err != nil {
		return storage.KV{}, err
	}
	return kv, nil
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	page, err := s.inner.List(ctx, prefix, opts)
	if err != nil {
		return page, err
	}
	for i := range page.KVs {
		if err := s.plain(ctx, &page.KVs[i]); err != nil {
			return storage.Page{}, err
		}
	}
	return page, nil
}

// Create implements storage.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte) (int64, error) {
	sealed, err := s.sealed(ctx, key, value)
	if err != nil {
		return 0, err
	}
	return s.inner.Create(ctx, key, sealed)
}

// Update implements storage.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, expect int64) (int64, error) {
	sealed, err := s.sealed(ctx, key, value)
	if err != nil {
		return 0, err
	}
	rev, err := s.inner.Update(ctx, key, sealed, expect)
	return rev, s.conflict(ctx, err)
}

func (s *Store) sealed(ctx context.Context, key string, value []byte) ([]byte, error) {
	if err := storage.CheckValue(key, value); err != nil {
		return nil, err
	}
	return s.keys.rules().of(key).seal(ctx, value, key)
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, key string, expect int64) (int64, error) {
	rev, err := s.inner.Delete(ctx, key, expect)
	return rev, s.conflict(ctx, err)
}

// conflict decrypts the present value in a *storage.ConflictError, in place: stores
// return a new error each time.
func (s *Store) conflict(ctx context.Context, err error) error {
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) || conflict.Current == nil {
		return err
	}
	if plainErr := s.plain(ctx, conflict.Current); plainErr != nil {
		return plainErr
	}
	return err
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watch, error) {
	w, err := s.inner.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return &watch{w, s}, nil
}

type watch struct {
	storage.Watch
	store *Store
}

// Next implements storage.Watch.
func (w *watch) Next(ctx context.Context) ([]storage.Event, error) {
	events, err := w.Watch.Next(ctx)
	for i := range events {
		if ev := &events[i]; !ev.IsMark() && !ev.Deleted() {
			if err := w.store.plain(ctx, &ev.KV); err != nil {
				return nil, err
			}
		}
	}
	return events, err
}

// Revision implements storage.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.inner.Revision(ctx) }

// Compact implements storage.Store.
func (s *Store) Compact(ctx context.Context, rev int64) error { return s.inner.Compact(ctx, rev) }
