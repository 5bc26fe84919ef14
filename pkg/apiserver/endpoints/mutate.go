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

// present is the state a write starts from.
type present struct {
	obj      scheme.Object // resourceVersion is set; shared: never to be modified
	revision int64
	entry    *watchcache.Entry // where it came from: the cache ...
	value    []byte            // ... or the store
	stale    bool              // the store keeps it in a form that is to be replaced
}

// plan is what an attempt to change an object comes to.
type plan struct {
	next   scheme.Object // what to store; nil: the object is to be removed
	undo   func(context.Context)
	settle func(context.Context) // after the write has happened
}

// mutate changes or removes an object by compare-and-swap. attempt is called
// with the present state until its plan is carried out: first as the cache has
// it, then, if that turns out to be old, as the store has it. An error that
// attempt has against an old state does not count.
func (r *resource) mutate(ctx context.Context, key, name string, dryRun bool, attempt func(*present) (plan, error)) (*stored, error) {
	cur, err := r.cached(ctx, key)
	for {
		if err != nil {
			return nil, r.writeError(name, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err // the client is gone, or its time is over
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
		if cur, err = r.afterConflict(conflict); err == nil {
			err = ctx.Err()
		}
	}
}

// cached is the object as the cache has it, else as the store has it.
func (r *resource) cached(ctx context.Context, key string) (*present, error) {
	snap, err := r.cache.AtLeast(ctx, 0)
	if err != nil {
		return nil, err
	}
	if e := snap.Get(key); e != nil {
		return &present{obj: e.Object(), revision: e.Revision, entry: e}, nil
	}
	return r.read(ctx, key)
}

func (r *resource) read(ctx context.Context, key string) (*present, error) {
	kv, err := r.api.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.presentOf(kv)
}

func (r *resource) afterConflict(c *storage.ConflictError) (*present, error) {
	if c.Current == nil {
		return nil, storage.ErrNotFound
	}
	return r.presentOf(*c.Current)
}

func (r *resource) presentOf(kv storage.KV) (*present, error) {
	obj, err := r.decode(kv)
	if err != nil {
		return nil, err
	}
	return &present{obj: obj, revision: kv.Revision, value: kv.Value, stale: kv.Stale}, nil
}

// errUnproven says that a plan without a write was made from the cache: that
// it needs none is only true if the store agrees.
var errUnproven = errors.New("the cached state is not proven to be the present one")

// carryOut does what a plan says, provided the object is still as in cur. A
// plan that changes nothing writes nothing, unless what is stored is stale:
// kept under an old key.
func (r *resource) carryOut(ctx context.Context, key string, cur *present, p plan, dryRun bool) (*stored, error) {
	if p.next == nil {
		return r.remove(ctx, key, cur, dryRun)
	}
	p.next.SetResourceVersion(cur.obj.GetResourceVersion())
	value, bare, err := r.encode(p.next)
	if err != nil {
		return nil, err
	}
	same, err := cur.equals(p.next, value, bare)
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
	if err != nil {
		return nil, err
	}
	p.next.SetResourceVersion(strconv.FormatInt(rev, 10))
	r.settle(ctx, rev)
	return &stored{obj: p.next, bare: bare}, nil
}

// settle waits until this server's own reads see what it has written to
// namespaces: nobody who has deleted one may create in it afterwards; and to
// roles and bindings: they count for the next request. An error only means that
// the wait was in vain.
func (r *resource) settle(ctx context.Context, rev int64) {
	if r.gates {
		_, _ = r.cache.AtLeast(ctx, rev)
	}
}

// remove deletes the object and returns its last state.
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

// equals says whether next, encoded as value around bare, is what is there.
// next has the present resourceVersion.
func (p *present) equals(next scheme.Object, value, bare []byte) (bool, error) {
	if p.entry == nil {
		return bytes.Equal(p.value, value), nil
	}
	if next.(protoMessage).Size() != p.obj.(protoMessage).Size() {
		return false, nil
	}
	have, err := p.entry.Proto()
	if err != nil {
		return false, err
	}
	want, err := scheme.WithRevision(bare, p.obj.GetResourceVersion())
	return err == nil && bytes.Equal(have, want), err
}
