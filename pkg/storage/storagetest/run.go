package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/storage"
)

// patience is the timeout of each test.
const patience = 20 * time.Second

// Run tests the whole contract. It calls newStore once for each test; the calls may
// return the same store, and the stores need not be empty.
func Run(t *testing.T, newStore func(t *testing.T) storage.Store) {
	for name, test := range map[string]func(*testing.T, *fixture){
		"create, get, update, delete":                    testLife,
		"conflicts carry the present state":              testConflicts,
		"what is refused":                                testRefused,
		"list by prefix, after a key, with a limit":      testList,
		"list as of a revision":                          testListRevision,
		"pages of one revision while others write":       testPages,
		"a list of many keys":                            testManyKeys,
		"compaction forgets":                             testCompaction,
		"compaction keeps what still shows":              testCompactionKeeps,
		"a watch shows each write, in order":             testWatch,
		"a watch from the past":                          testWatchPast,
		"a watch from a compacted revision":              testWatchCompacted,
		"a watch may be stopped while Next waits":        testWatchStop,
		"a watch outlives the context it was begun with": testWatchContext,
		"marks tell how far a watch is":                  testMarks,
		"a revision covers what was acknowledged":        testRevision,
		"a call whose context has ended":                 testEnded,
		"concurrent writers: one wins":                   testWriters,
		"watchers see what concurrent writers did":       testWritersWatched,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			test(t, newFixture(t, ctx, newStore(t)))
		})
	}
}

// fixture is a store with a prefix that no other test uses.
type fixture struct {
	t *testing.T
	storage.Store
	ctx    context.Context
	prefix string
}

var fixtures atomic.Int64

func newFixture(t *testing.T, ctx context.Context, s storage.Store) *fixture {
	return &fixture{t, s, ctx, fmt.Sprintf("/registry/%d-%d/", time.Now().UnixNano(), fixtures.Add(1))}
}

func (f *fixture) key(name string) string { return f.prefix + name }

func (f *fixture) create(name, value string) int64 {
	f.t.Helper()
	rev, err := f.Create(f.ctx, f.key(name), []byte(value))
	if err != nil {
		f.t.Fatalf("create %s: %v", name, err)
	}
	return rev
}

func (f *fixture) update(name, value string, expect int64) int64 {
	f.t.Helper()
	rev, err := f.Update(f.ctx, f.key(name), []byte(value), expect)
	if err != nil {
		f.t.Fatalf("update %s: %v", name, err)
	}
	return rev
}

func (f *fixture) delete(name string, expect int64) int64 {
	f.t.Helper()
	rev, err := f.Delete(f.ctx, f.key(name), expect)
	if err != nil {
		f.t.Fatalf("delete %s: %v", name, err)
	}
	return rev
}

func (f *fixture) list(opts storage.ListOptions) storage.Page {
	f.t.Helper()
	page, err := f.List(f.ctx, f.prefix, opts)
	if err != nil {
		f.t.Fatalf("list %+v: %v", opts, err)
	}
	return page
}

func (f *fixture) compact(rev int64) {
	f.t.Helper()
	if err := f.Compact(f.ctx, rev); err != nil {
		f.t.Fatalf("compact to %d: %v", rev, err)
	}
}

func (f *fixture) watch(after int64) storage.Watch {
	f.t.Helper()
	w, err := f.Watch(f.ctx, f.prefix, after)
	if err != nil {
		f.t.Fatalf("watch after %d: %v", after, err)
	}
	f.t.Cleanup(w.Stop)
	return w
}

// next reads n events and ignores marks.
func (f *fixture) next(w storage.Watch, n int) []storage.Event {
	f.t.Helper()
	var events []storage.Event
	for len(events) < n {
		more, err := w.Next(f.ctx)
		if err != nil {
			f.t.Fatalf("after %d of %d events: %v", len(events), n, err)
		}
		for _, ev := range more {
			if !ev.IsMark() {
				events = append(events, ev)
			}
		}
	}
	return events
}

func (f *fixture) kv(name, value string, rev int64) storage.KV {
	return storage.KV{Key: f.key(name), Value: []byte(value), Revision: rev}
}

func (f *fixture) event(name, value string, rev int64) storage.Event {
	ev := storage.Event{KV: storage.KV{Key: f.key(name), Revision: rev}}
	if value != "" {
		ev.Value = []byte(value)
	}
	return ev
}

func (f *fixture) same(what string, want, got any) {
	f.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (f *fixture) wantErr(what string, err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Errorf("%s: got %v, want %v", what, err, want)
	}
}
