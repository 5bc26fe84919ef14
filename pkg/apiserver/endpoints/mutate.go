package endpoints

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// present is the state that a write starts from.
type present struct {
	obj      scheme.Object // resourceVersion is set; shared, must not be modified
	revision int64
	entry    *watchcache.Entry // set if the state is from the cache
	value    []byte            // set if the state is from the store
	stale    bool              // the value is encrypted with an old key and must be rewritten
}

// plan is the result of one attempt to change an object.
type plan struct {
	next    scheme.Object         // the object to store; nil: remove it
	undo    func(context.Context) // releases allocations if the write does not happen; may be nil
	shrinks bool                  // if next does not fit the store, it is stored without managed fields
	settle  func(context.Context) // called after the write, but not in a dry run; may be nil
}

// mutate changes or removes an object by compare-and-swap. It calls attempt with
// the present state until the plan succeeds: first with the cached state, then, if
// that turns out to be stale, with the state in the store. It ignores an error of
// attempt against a stale state. attempt may run many times and must not modify its
// argument.
func (r *resource) mutate(ctx context.Context, key, name string, dryRun bool, attempt func(*present) (plan, error)) (*stored, error) {
	start := r.cached
	if dryRun || r.converts() { // needs proof that the state is the present one, or the stored value itself
		start = r.read
	}
	cur, err := start(ctx, key)
	for {
		if err != nil {
			return nil, r.writeError(name, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err // the client has disconnected, or the request timed out
		}
		p, planErr := attempt(cur)
		if planErr != nil {
			if p.undo != nil {
				p.undo(context.WithoutCancel(ctx))
			}
			if cur.entry == nil {
				return nil, planErr
			}
			seen := cur.revision
			if cur, err = r.read(ctx, key); err == nil && cur.revision == seen {
				return nil, planErr
			}
			continue
		}
		s, doErr := r.carryOut(ctx, key, cur, p, dryRun)
		if doErr == nil {
			if p.settle != nil && !dryRun {
				p.settle(context.WithoutCancel(ctx))
			}
			return s, nil
		}
		if p.undo != nil {
			p.undo(context.WithoutCancel(ctx))
		}
		if errors.Is(doErr, errUnproven) {
			cur, err = r.read(ctx, key)
			continue
		}
		var conflict *storage.ConflictError
		if !errors.As(doErr, &conflict) {
			return nil, r.writeError(name, doErr)
		}
		if cur, err = r.afterConflict(ctx, conflict); err == nil {
			err = ctx.Err()
		}
	}
}

// cached returns the object from the cache or, if the cache does not have it, from
// the store.
func (r *resource) cached(ctx context.Context, key string) (*present, error) {
	snap, err := r.cache.AtLeast(ctx, 0)
	if errors.Is(err, watchcache.ErrRemoved) {
		return r.read(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	if e := snap.Get(key); e != nil {
		return &present{obj: e.Object(), revision: e.Revision, entry: e}, nil
	}
	return r.read(ctx, key)
}

// read returns the object from the store, or storage.ErrNotFound.
func (r *resource) read(ctx context.Context, key string) (*present, error) {
	kv, err := r.api.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.presentOf(ctx, kv)
}

// afterConflict returns the state that a conflict carries, or storage.ErrNotFound
// if the object was deleted.
func (r *resource) afterConflict(ctx context.Context, c *storage.ConflictError) (*present, error) {
	if c.Current == nil {
		return nil, storage.ErrNotFound
	}
	return r.presentOf(ctx, *c.Current)
}

func (r *resource) presentOf(ctx context.Context, kv storage.KV) (*present, error) {
	obj, err := r.decode(kv)
	if err == nil && r.converts() && r != r.raw {
		var objs []scheme.Object
		if objs, err = r.convert(ctx, []scheme.Object{obj}); err == nil {
			obj = objs[0]
		}
	}
	if err != nil {
		return nil, err
	}
	return &present{obj: obj, revision: kv.Revision, value: kv.Value, stale: kv.Stale}, nil
}

// errUnproven is returned for a plan that needs no write but was made from the
// cache. The plan is valid only if the store holds the same state.
var errUnproven = errors.New("the cached state is not proven to be the present one")

// carryOut executes a plan, provided the object is still as in cur; otherwise it
// returns a *storage.ConflictError. It skips a write that changes nothing, unless
// the stored value is stale: encrypted with an old key.
func (r *resource) carryOut(ctx context.Context, key string, cur *present, p plan, dryRun bool) (*stored, error) {
	if p.next == nil {
		return r.remove(ctx, key, cur, dryRun)
	}
	p.next.SetResourceVersion(cur.obj.GetResourceVersion())
	value, bare, err := r.encode(ctx, p.next)
	if err != nil {
		return nil, err
	}
	same, err := r.same(p.next, value, bare, cur)
	if err != nil {
		return nil, err
	}
	if same || dryRun {
		if cur.entry != nil {
			return nil, errUnproven
		}
		if dryRun || !cur.stale {
			return &stored{obj: p.next, bare: bare}, nil
		}
	}
	if err := request.Spend(ctx, len(value)); err != nil {
		return nil, err
	}
	rev, err := r.api.Store.Update(ctx, key, value, cur.revision)
	if errors.Is(err, storage.ErrTooLarge) && p.shrinks && len(p.next.GetManagedFields()) > 0 {
		p.next.SetManagedFields(nil)
		return r.carryOut(ctx, key, cur, p, dryRun)
	}
	if err != nil {
		return nil, err
	}
	p.next.SetResourceVersion(strconv.FormatInt(rev, 10))
	r.settle(ctx, rev)
	return &stored{obj: p.next, bare: bare}, nil
}

// settle waits until the cache of this server has the revision rev, for the kinds
// that other requests depend on: after a namespace is deleted, no later request may
// create objects in it, and roles, webhooks, policies and bindings apply from the
// next request on. It ignores an error, because the write has succeeded.
func (r *resource) settle(ctx context.Context, rev int64) {
	if r.gates {
		_, _ = r.cache.AtLeast(ctx, rev)
	}
}

// remove deletes the object and returns its last state, with the revision of the
// delete as resourceVersion.
func (r *resource) remove(ctx context.Context, key string, cur *present, dryRun bool) (*stored, error) {
	last := cur.obj.DeepCopyObject().(scheme.Object)
	if dryRun {
		if cur.entry != nil {
			return nil, errUnproven
		}
		return &stored{obj: last}, nil
	}
	rev, err := r.api.Store.Delete(ctx, key, cur.revision)
	if err != nil {
		return nil, err
	}
	last.SetResourceVersion(strconv.FormatInt(rev, 10))
	r.settle(ctx, rev)
	return &stored{obj: last}, nil
}

// same reports whether next, encoded as value and bare, equals the present state.
// next has the present resourceVersion.
func (r *resource) same(next scheme.Object, value, bare []byte, have *present) (bool, error) {
	if have.entry == nil {
		return bytes.Equal(have.value, value), nil
	}
	return r.codec.same(next, bare, have)
}
