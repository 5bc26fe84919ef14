package memory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/google/btree"

	"podium/pkg/storage"
)

// Store implements storage.Store. It keeps all versions until Compact. Use New to
// create one; the zero value is not usable. All methods are safe for concurrent
// use.
type Store struct {
	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      *btree.BTreeG[*record]
	log       []storage.Event // every write after compacted
	changed   chan struct{}   // closed and replaced by every write, compaction and mark
}

// record is a key with its values, oldest first.
type record struct {
	key      string
	versions []version
}

type version struct {
	revision int64
	value    []byte // nil: deleted at this revision
}

// New creates an empty store. Its revision is 1, as that of an empty etcd.
func New() *Store {
	return &Store{
		revision: 1,
		keys:     btree.NewG(32, func(a, b *record) bool { return a.key < b.key }),
		changed:  make(chan struct{}),
	}
}

// Get returns the present value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key string) (storage.KV, error) {
	if err := ctx.Err(); err != nil {
		return storage.KV{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kv, ok := s.present(key); ok {
		return kv, nil
	}
	return storage.KV{}, fmt.Errorf("%s: %w", key, storage.ErrNotFound)
}

// List returns the values under a prefix in key order. Remaining is exact.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	if err := ctx.Err(); err != nil {
		return storage.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page := storage.Page{Revision: s.revision}
	switch {
	case opts.Revision > s.revision:
		return page, fmt.Errorf("list %s at revision %d: %w", prefix, opts.Revision, storage.ErrFuture)
	case opts.Revision > 0 && opts.Revision < s.compacted:
		return page, fmt.Errorf("list %s at revision %d: %w", prefix, opts.Revision, storage.ErrCompacted)
	case opts.Revision > 0:
		page.Revision = opts.Revision
	}
	from := prefix
	if opts.After >= prefix && opts.After != "" {
		from = opts.After + "\x00"
	}
	s.keys.AscendGreaterOrEqual(&record{key: from}, func(r *record) bool {
		if !strings.HasPrefix(r.key, prefix) {
			return false
		}
		kv, ok := r.at(page.Revision)
		switch {
		case !ok:
		case opts.Limit > 0 && len(page.KVs) == opts.Limit:
			page.Remaining++
		default:
			page.KVs = append(page.KVs, kv)
		}
		return true
	})
	page.More = page.Remaining > 0
	return page, nil
}

// Create stores a value under a new key, or returns storage.ErrExists.
func (s *Store) Create(ctx context.Context, key string, value []byte) (int64, error) {
	if err := check(ctx, key, value); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.present(key); ok {
		return 0, fmt.Errorf("%s: %w", key, storage.ErrExists)
	}
	return s.write(key, value), nil
}

// Update replaces the value written at the revision expect, or returns a
// *storage.ConflictError.
func (s *Store) Update(ctx context.Context, key string, value []byte, expect int64) (int64, error) {
	if err := check(ctx, key, value); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.expect(key, expect); err != nil {
		return 0, err
	}
	return s.write(key, value), nil
}

// Delete removes the value written at the revision expect, or returns a
// *storage.ConflictError.
func (s *Store) Delete(ctx context.Context, key string, expect int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.expect(key, expect); err != nil {
		return 0, err
	}
	return s.write(key, nil), nil
}

// Revision returns the revision of the last write.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// Compact discards values that were overwritten or deleted before rev, and ends
// watches that have not reached rev with storage.ErrCompacted.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case rev > s.revision:
		return fmt.Errorf("compact to revision %d: %w", rev, storage.ErrFuture)
	case rev <= s.compacted:
		return fmt.Errorf("compact to revision %d: %w", rev, storage.ErrCompacted)
	}
	s.compacted = rev
	n := s.logIndex(rev)
	touched := map[string]bool{}
	for _, ev := range s.log[:n] {
		touched[ev.Key] = true
	}
	for key := range touched {
		s.compactRecord(key)
	}
	s.log = slices.Clone(s.log[n:])
	s.wake()
	return nil
}

// compactRecord discards the versions of a key that are not visible at s.compacted
// or later.
func (s *Store) compactRecord(key string) {
	r, ok := s.keys.Get(&record{key: key})
	if !ok {
		return
	}
	n := 0
	for n+1 < len(r.versions) && r.versions[n+1].revision <= s.compacted {
		n++
	}
	if r.versions[n].value == nil && r.versions[n].revision <= s.compacted {
		n++
	}
	r.versions = slices.Clone(r.versions[n:])
	if len(r.versions) == 0 {
		s.keys.Delete(r)
	}
}

// at returns the value that is visible at a revision.
func (r *record) at(rev int64) (storage.KV, bool) {
	i := sort.Search(len(r.versions), func(i int) bool { return r.versions[i].revision > rev }) - 1
	if i < 0 || r.versions[i].value == nil {
		return storage.KV{}, false
	}
	return storage.KV{Key: r.key, Value: r.versions[i].value, Revision: r.versions[i].revision}, true
}

func (s *Store) present(key string) (storage.KV, bool) {
	r, ok := s.keys.Get(&record{key: key})
	if !ok {
		return storage.KV{}, false
	}
	return r.at(s.revision)
}

func (s *Store) expect(key string, rev int64) error {
	kv, ok := s.present(key)
	switch {
	case !ok:
		return &storage.ConflictError{Key: key}
	case kv.Revision != rev:
		return &storage.ConflictError{Key: key, Current: &kv}
	}
	return nil
}

// write appends a version with a new revision; a nil value deletes the key. The
// caller holds s.mu.
func (s *Store) write(key string, value []byte) int64 {
	s.revision++
	r, ok := s.keys.Get(&record{key: key})
	if !ok {
		r = &record{key: key}
		s.keys.ReplaceOrInsert(r)
	}
	r.versions = append(r.versions, version{s.revision, value})
	s.log = append(s.log, storage.Event{KV: storage.KV{Key: r.key, Value: value, Revision: s.revision}})
	s.wake()
	return s.revision
}

func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// logIndex returns the index in s.log of the first write after rev.
func (s *Store) logIndex(rev int64) int {
	return sort.Search(len(s.log), func(i int) bool { return s.log[i].Revision > rev })
}

func check(ctx context.Context, key string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return storage.CheckValue(key, value)
}
