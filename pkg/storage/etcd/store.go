package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podium/pkg/storage"
)

const (
	callTimeout = 5 * time.Second // of calls without a deadline
	pageSize    = 1000            // values per request
)

// Store implements storage.Store with etcd. Use Open or Embed to create one. All
// methods are safe for concurrent use.
type Store struct {
	client *clientv3.Client
	log    *slog.Logger

	// singleMember is set for a member in this process: it is the whole cluster, and this
	// Store is its only client. A serializable read is then linearizable: a write
	// is acknowledged once this member has applied it, no other member can
	// acknowledge one, and reads return what is applied.
	singleMember bool
	read         []clientv3.OpOption // options for linearizable reads
	marks        bool                // the progress notifications of the server can be trusted

	// latest is the highest revision seen in a response or an event. For a sole
	// client it is the revision of the store: every write goes through this Store,
	// which notes the revision before it acknowledges the write. A write without a
	// response is not acknowledged; when an event or a read first shows it, its
	// revision is noted before the result is returned, so that the revision never
	// goes back.
	latest atomic.Int64

	snapshot  func(context.Context) (io.ReadCloser, error)
	ask       question // shared by concurrent calls of Revision on a remote cluster
	closeOnce sync.Once
	closers   []func() error
}

// Get returns the present value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key string) (storage.KV, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, key, s.read...)
	if err != nil {
		return storage.KV{}, explain("get "+key, err)
	}
	s.note(resp.Header.Revision)
	if len(resp.Kvs) == 0 {
		return storage.KV{}, fmt.Errorf("%s: %w", key, storage.ErrNotFound)
	}
	return kvOf(resp.Kvs[0]), nil
}

// List returns the values under a prefix. It reads many values in several requests
// at one revision.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	page := storage.Page{Revision: opts.Revision}
	from := prefix
	if opts.After >= prefix && opts.After != "" {
		from = opts.After + "\x00"
	}
	for {
		n := pageSize
		if left := opts.Limit - len(page.KVs); opts.Limit > 0 && left < n {
			n = left
		}
		resp, err := s.listSome(ctx, from, prefix, page.Revision, n)
		if err != nil {
			return storage.Page{}, explain("list "+prefix, err)
		}
		if page.Revision == 0 {
			page.Revision = resp.Header.Revision
		}
		if page.KVs == nil {
			page.KVs = make([]storage.KV, 0, pageCapacity(int(resp.Count), opts.Limit))
		}
		for _, kv := range resp.Kvs {
			page.KVs = append(page.KVs, kvOf(kv))
		}
		page.More, page.Remaining = resp.More, resp.Count-int64(len(resp.Kvs))
		if !resp.More || len(resp.Kvs) == 0 || len(page.KVs) == opts.Limit {
			return page, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// listSome makes one range request for at most n values at rev; 0 is the newest
// revision.
func (s *Store) listSome(ctx context.Context, from, prefix string, rev int64, n int) (*clientv3.GetResponse, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	opts := append([]clientv3.OpOption{
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(int64(n)), clientv3.WithRev(rev),
	}, s.read...)
	resp, err := s.client.Get(ctx, from, opts...)
	if err == nil {
		s.note(resp.Header.Revision)
	}
	return resp, err
}

func pageCapacity(count, limit int) int {
	if limit > 0 {
		return min(count, limit)
	}
	return count
}

// Create stores a value under a new key, or returns storage.ErrExists.
func (s *Store) Create(ctx context.Context, key string, value []byte) (int64, error) {
	if err := storage.CheckValue(key, value); err != nil {
		return 0, err
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(value))).
		Commit()
	if err != nil {
		return 0, explain("create "+key, err)
	}
	s.note(resp.Header.Revision)
	if !resp.Succeeded {
		return 0, fmt.Errorf("%s: %w", key, storage.ErrExists)
	}
	return resp.Header.Revision, nil
}

// Update replaces the value written at the revision expect, or returns a
// *storage.ConflictError.
func (s *Store) Update(ctx context.Context, key string, value []byte, expect int64) (int64, error) {
	if err := storage.CheckValue(key, value); err != nil {
		return 0, err
	}
	return s.swap(ctx, "update ", key, expect, clientv3.OpPut(key, string(value)))
}

// Delete removes the value written at the revision expect, or returns a
// *storage.ConflictError.
func (s *Store) Delete(ctx context.Context, key string, expect int64) (int64, error) {
	return s.swap(ctx, "delete ", key, expect, clientv3.OpDelete(key))
}

// swap executes op if the key is at the revision expect, else it returns a
// *storage.ConflictError.
func (s *Store) swap(ctx context.Context, verb, key string, expect int64, op clientv3.Op) (int64, error) {
	if expect <= 0 { // etcd takes revision 0 for a key that does not exist
		kv, err := s.Get(ctx, key)
		if errors.Is(err, storage.ErrNotFound) {
			return 0, &storage.ConflictError{Key: key}
		} else if err != nil {
			return 0, err
		}
		return 0, &storage.ConflictError{Key: key, Current: &kv}
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expect)).
		Then(op).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return 0, explain(verb+key, err)
	}
	s.note(resp.Header.Revision)
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	conflict := &storage.ConflictError{Key: key}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		kv := kvOf(kvs[0])
		conflict.Current = &kv
	}
	return 0, conflict
}

// Revision returns the latest revision of the store. A sole client knows it;
// otherwise Revision makes a linearizable read, which concurrent callers share.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if s.singleMember {
		return s.latest.Load(), ctx.Err()
	}
	rev, err := s.ask.answer(ctx, s.readRevision)
	return rev, explain("read the revision", err)
}

func (s *Store) readRevision(ctx context.Context) (int64, error) {
	resp, err := s.client.Get(ctx, "revision", clientv3.WithCountOnly()) // any key: the response header has the revision
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// Compact discards values that were overwritten or deleted before rev.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	_, err := s.client.Compact(ctx, rev)
	return explain(fmt.Sprintf("compact to revision %d", rev), err)
}

// Snapshot streams a copy of the present store, in the format that `etcdutl
// snapshot restore` reads. ctx bounds the whole stream. The caller must close the
// reader.
func (s *Store) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	r, err := s.snapshot(ctx)
	return r, explain("snapshot", err)
}

// Close closes the connection, and stops an embedded member. A second call does
// nothing.
func (s *Store) Close() error {
	var errs []error
	s.closeOnce.Do(func() {
		for _, f := range s.closers {
			errs = append(errs, f())
		}
	})
	return errors.Join(errs...)
}

// note raises latest to rev.
func (s *Store) note(rev int64) {
	for {
		latest := s.latest.Load()
		if rev <= latest || s.latest.CompareAndSwap(latest, rev) {
			return
		}
	}
}

func kvOf(kv *mvccpb.KeyValue) storage.KV {
	return storage.KV{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
}

// bound returns ctx with a deadline of callTimeout, unless it has a deadline.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// explain translates an error of etcd to an error of the storage contract. nil
// stays nil.
func explain(did string, err error) error {
	if err == nil {
		return nil
	}
	kind := err
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		kind = storage.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		kind = storage.ErrFuture
	case errors.Is(err, rpctypes.ErrRequestTooLarge), status.Code(err) == codes.ResourceExhausted && !errors.Is(err, rpctypes.ErrNoSpace):
		kind = fmt.Errorf("%w (%w)", storage.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		kind = fmt.Errorf("etcd has reached its quota: delete objects, then compact and defragment it (%w)", err)
	case status.Code(err) == codes.Canceled:
		kind = fmt.Errorf("%w (%w)", context.Canceled, err)
	case status.Code(err) == codes.DeadlineExceeded:
		kind = fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("%s: %w", did, kind)
}
