package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/storage"
	"podium/pkg/storage/memory"
)

// The same random calls on memory and on etcd return the same results, including
// revisions, and the same watch events.
func TestMemoryBehavesAsEtcd(t *testing.T) {
	for seed := range uint64(10) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		both := &pair{t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 7)), a: memory.New(), b: embed(t, t.TempDir())}
		for i := range 300 {
			both.step(i)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, i)
			}
		}
		both.watches()
		cancel()
	}
}

type pair struct {
	t         *testing.T
	ctx       context.Context
	rng       *rand.Rand
	a, b      storage.Store
	compacted int64
}

func (p *pair) step(i int) {
	key := fmt.Sprintf("/registry/%c/%d", 'a'+p.rng.IntN(2), p.rng.IntN(8))
	value := fmt.Append(nil, i)
	now, err := p.a.Revision(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	past := max(now+2-p.rng.Int64N(12), 1)
	expect := past
	if kv, err := p.a.Get(p.ctx, key); err == nil && p.rng.IntN(3) > 0 {
		expect = kv.Revision
	}
	opts := storage.ListOptions{Revision: past * p.rng.Int64N(2), Limit: p.rng.IntN(5)}
	if p.rng.IntN(2) == 0 {
		opts.After = key
	}
	switch what := p.rng.IntN(20); {
	case what < 6:
		p.same("create "+key, func(s storage.Store) (any, error) { return s.Create(p.ctx, key, value) })
	case what < 10:
		p.same("update "+key, func(s storage.Store) (any, error) { return s.Update(p.ctx, key, value, expect) })
	case what < 13:
		p.same("delete "+key, func(s storage.Store) (any, error) { return s.Delete(p.ctx, key, expect) })
	case what < 15:
		p.same("get "+key, func(s storage.Store) (any, error) { return s.Get(p.ctx, key) })
	case what < 19:
		p.same(fmt.Sprintf("list %+v", opts), func(s storage.Store) (any, error) {
			page, err := s.List(p.ctx, "/registry/a/", opts)
			if len(page.KVs) == 0 {
				page.KVs = nil
			}
			return page, err
		})
	default:
		p.same(fmt.Sprintf("compact %d", past), func(s storage.Store) (any, error) { return nil, s.Compact(p.ctx, past) })
		p.compacted = max(p.compacted, min(past, now))
	}
}

// same checks that both stores return equal results, or errors of the same kind.
func (p *pair) same(what string, call func(storage.Store) (any, error)) {
	p.t.Helper()
	a, errA := call(p.a)
	b, errB := call(p.b)
	if kindA, kindB := kind(errA), kind(errB); !cmp.Equal(kindA, kindB) {
		p.t.Errorf("%s: memory says %v, etcd says %v", what, errA, errB)
	} else if errA == nil {
		if diff := cmp.Diff(a, b); diff != "" {
			p.t.Errorf("%s (-memory +etcd):\n%s", what, diff)
		}
	}
}

func kind(err error) any {
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) {
		return conflict
	}
	for _, known := range []error{storage.ErrNotFound, storage.ErrExists, storage.ErrCompacted, storage.ErrFuture} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "another error"
	}
	return nil
}

// watches compares the events of both stores since the compacted revision.
func (p *pair) watches() {
	end, err := p.a.Create(p.ctx, "/registry/a/end", []byte("end"))
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.b.Create(p.ctx, "/registry/a/end", []byte("end")); err != nil {
		p.t.Fatal(err)
	}
	p.same("watch", func(s storage.Store) (any, error) {
		w, err := s.Watch(p.ctx, "/registry/a/", p.compacted)
		if err != nil {
			return nil, err
		}
		defer w.Stop()
		var all []storage.Event
		for {
			events, err := w.Next(p.ctx)
			if err != nil {
				return nil, err
			}
			for _, ev := range events {
				if !ev.IsMark() {
					all = append(all, ev)
				}
			}
			if n := len(all); n > 0 && all[n-1].Revision == end {
				return all, nil
			}
		}
	})
}
