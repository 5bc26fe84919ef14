package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"podium/pkg/storage"
)

func testLife(t *testing.T, f *fixture) {
	_, err := f.Get(f.ctx, f.key("a"))
	f.wantErr("get what is not there", err, storage.ErrNotFound)

	created := f.create("a", "one")
	got, err := f.Get(f.ctx, f.key("a"))
	if err != nil {
		t.Fatal(err)
	}
	f.same("created", f.kv("a", "one", created), got)

	updated := f.update("a", "two", created)
	if updated <= created {
		t.Errorf("update made revision %d after %d", updated, created)
	}
	got, err = f.Get(f.ctx, f.key("a"))
	if err != nil {
		t.Fatal(err)
	}
	f.same("updated", f.kv("a", "two", updated), got)

	deleted := f.delete("a", updated)
	if deleted <= updated {
		t.Errorf("delete made revision %d after %d", deleted, updated)
	}
	_, err = f.Get(f.ctx, f.key("a"))
	f.wantErr("get what was deleted", err, storage.ErrNotFound)

	if again := f.create("a", "three"); again <= deleted {
		t.Errorf("second create made revision %d after %d", again, deleted)
	}
}

func testConflicts(t *testing.T, f *fixture) {
	rev := f.create("a", "one")
	_, err := f.Create(f.ctx, f.key("a"), []byte("x"))
	f.wantErr("create what exists", err, storage.ErrExists)

	present := f.kv("a", "one", rev)
	write := map[string]func(name string, expect int64) error{
		"update": func(name string, expect int64) error {
			_, err := f.Update(f.ctx, f.key(name), []byte("x"), expect)
			return err
		},
		"delete": func(name string, expect int64) error {
			_, err := f.Delete(f.ctx, f.key(name), expect)
			return err
		},
	}
	for verb, do := range write {
		for _, expect := range []int64{0, rev - 1, rev + 1} {
			f.conflict(fmt.Sprintf("%s expecting %d, it is at %d", verb, expect, rev), do("a", expect), &present)
		}
		for _, expect := range []int64{0, rev} {
			f.conflict(fmt.Sprintf("%s of nothing expecting %d", verb, expect), do("absent", expect), nil)
		}
	}
	got, err := f.Get(f.ctx, f.key("a"))
	if err != nil {
		t.Fatal(err)
	}
	f.same("after all that", present, got)
}

func (f *fixture) conflict(what string, err error, want *storage.KV) {
	f.t.Helper()
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		f.t.Errorf("%s: got %v, want a conflict", what, err)
		return
	}
	f.same(what, want, conflict.Current)
}

func testRefused(t *testing.T, f *fixture) {
	big := bytes.Repeat([]byte("x"), storage.MaxValue)
	_, err := f.Create(f.ctx, f.key("big"), big)
	f.wantErr("create with too large a value", err, storage.ErrTooLarge)
	rev, err := f.Create(f.ctx, f.key("big"), big[1:])
	if err != nil {
		t.Fatalf("create with the largest value: %v", err)
	}
	_, err = f.Update(f.ctx, f.key("big"), big, rev)
	f.wantErr("update with too large a value", err, storage.ErrTooLarge)
	if _, err = f.Update(f.ctx, f.key("big"), nil, rev); err == nil {
		t.Error("an empty value was taken: it reads as a deletion")
	}
	if events := f.next(f.watch(rev-1), 1); len(events[0].Value) != storage.MaxValue-1 {
		t.Errorf("the watch shows %d bytes", len(events[0].Value))
	}
}

func testList(t *testing.T, f *fixture) {
	var all []storage.KV
	for _, name := range []string{"a", "a-b", "a/x", "b", "c/"} { // in byte order: '-' before '/'
		all = append(all, f.kv(name, "v"+name, f.create(name, "v"+name)))
	}
	outside := f.prefix[:len(f.prefix)-1] + "0" // the first key after the prefix
	if _, err := f.Create(f.ctx, outside, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		opts storage.ListOptions
		want []storage.KV
		left int64
	}{
		"all":                          {storage.ListOptions{}, all, 0},
		"a limit":                      {storage.ListOptions{Limit: 2}, all[:2], 3},
		"a limit of just as many":      {storage.ListOptions{Limit: 5}, all, 0},
		"a limit above":                {storage.ListOptions{Limit: 6}, all, 0},
		"after a key":                  {storage.ListOptions{After: all[1].Key}, all[2:], 0},
		"after a key that is not":      {storage.ListOptions{After: f.key("a-a")}, all[1:], 0},
		"after a key before the first": {storage.ListOptions{After: "/"}, all, 0},
		"after the last":               {storage.ListOptions{After: all[4].Key}, nil, 0},
		"after and limit":              {storage.ListOptions{After: all[0].Key, Limit: 2}, all[1:3], 2},
	} {
		page := f.list(row.opts)
		if len(page.KVs) == 0 {
			page.KVs = nil
		}
		f.same(name, row.want, page.KVs)
		if page.More != (row.left > 0) || page.Remaining != row.left && page.Remaining != -1 {
			t.Errorf("%s: more %v, remaining %d; want %d left", name, page.More, page.Remaining, row.left)
		}
		if page.Revision < all[4].Revision {
			t.Errorf("%s: revision %d is below the last write's, %d", name, page.Revision, all[4].Revision)
		}
	}
}

func testListRevision(t *testing.T, f *fixture) {
	first := f.create("a", "1")
	second := f.create("b", "1")
	third := f.update("a", "2", first)
	fourth := f.delete("b", second)
	for rev, want := range map[int64][]storage.KV{
		first:  {f.kv("a", "1", first)},
		second: {f.kv("a", "1", first), f.kv("b", "1", second)},
		third:  {f.kv("a", "2", third), f.kv("b", "1", second)},
		fourth: {f.kv("a", "2", third)},
	} {
		page := f.list(storage.ListOptions{Revision: rev})
		f.same(fmt.Sprintf("at %d", rev), storage.Page{KVs: want, Revision: rev}, page)
	}
	now, err := f.Revision(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.List(f.ctx, f.prefix, storage.ListOptions{Revision: now + 1000})
	f.wantErr("list in the future", err, storage.ErrFuture)
}

func testPages(t *testing.T, f *fixture) {
	const n = 25
	revs := map[string]int64{}
	var want []storage.KV
	for i := range n {
		name := fmt.Sprintf("k%03d", i)
		revs[name] = f.create(name, "v")
		want = append(want, f.kv(name, "v", revs[name]))
	}
	var got []storage.KV
	opts := storage.ListOptions{Limit: 4}
	for i := 0; ; i++ {
		page := f.list(opts)
		got = append(got, page.KVs...)
		if !page.More {
			break
		}
		opts.Revision, opts.After = page.Revision, page.KVs[len(page.KVs)-1].Key
		// Write before, on and after the page; the list must not include any of it.
		f.create(fmt.Sprintf("k%03da", i), "new")
		f.delete(fmt.Sprintf("k%03d", n-1-i), revs[fmt.Sprintf("k%03d", n-1-i)])
	}
	f.same("the pages together", want, got)
}

func testManyKeys(t *testing.T, f *fixture) {
	const n = 2500 // more than an implementation reads in one request
	var writers sync.WaitGroup
	for w := range 25 {
		writers.Go(func() {
			for i := w; i < n; i += 25 {
				if _, err := f.Create(f.ctx, f.key(fmt.Sprintf("k%05d", i)), []byte("v")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	page := f.list(storage.ListOptions{})
	if len(page.KVs) != n || page.More {
		t.Fatalf("%d keys, more %v; want %d", len(page.KVs), page.More, n)
	}
	for i, kv := range page.KVs {
		if want := f.key(fmt.Sprintf("k%05d", i)); kv.Key != want {
			t.Fatalf("key %d is %s, want %s", i, kv.Key, want)
		}
	}
	if page := f.list(storage.ListOptions{Limit: 1800}); len(page.KVs) != 1800 || !page.More {
		t.Errorf("a limit of 1800 gives %d keys, more %v", len(page.KVs), page.More)
	}
}

func testCompaction(t *testing.T, f *fixture) {
	first := f.create("a", "1")
	second := f.update("a", "2", first)
	third := f.update("a", "3", second)
	f.compact(third)
	for _, rev := range []int64{first, second} {
		_, err := f.List(f.ctx, f.prefix, storage.ListOptions{Revision: rev})
		f.wantErr(fmt.Sprintf("list at %d, compacted to %d", rev, third), err, storage.ErrCompacted)
	}
	f.wantErr("compact again", f.Compact(f.ctx, third), storage.ErrCompacted)
	f.wantErr("compact to less", f.Compact(f.ctx, second), storage.ErrCompacted)
	now, err := f.Revision(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.wantErr("compact to the future", f.Compact(f.ctx, now+1000), storage.ErrFuture)
}

func testCompactionKeeps(t *testing.T, f *fixture) {
	a := f.create("a", "1")
	b := f.create("b", "1")
	gone := f.create("gone", "1")
	f.delete("gone", gone)
	a2 := f.update("a", "2", a)
	f.compact(a2)
	want := []storage.KV{f.kv("a", "2", a2), f.kv("b", "1", b)}
	f.same("at the compacted revision", want, f.list(storage.ListOptions{Revision: a2}).KVs)
	f.same("now", want, f.list(storage.ListOptions{}).KVs)
	back := f.create("gone", "2")
	events := f.next(f.watch(a2), 1)
	f.same("a watch from the compacted revision on", []storage.Event{f.event("gone", "2", back)}, events)
}

func testRevision(t *testing.T, f *fixture) {
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 50 {
				rev, err := f.Create(f.ctx, f.key(fmt.Sprintf("%d-%d", w, i)), []byte("v"))
				if err != nil {
					t.Error(err)
					return
				}
				now, err := f.Revision(f.ctx)
				if err != nil || now < rev {
					t.Errorf("revision %d (%v) after a write at %d", now, err, rev)
					return
				}
			}
		})
	}
	writers.Wait()
}

func testWriters(t *testing.T, f *fixture) {
	const writers, rounds = 8, 20
	f.create("counter", "0")
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range rounds {
				if err := f.increment("counter"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	kv, err := f.Get(f.ctx, f.key("counter"))
	if err != nil {
		t.Fatal(err)
	}
	f.same("no increment is lost", fmt.Sprint(writers*rounds), string(kv.Value))
}

// increment adds 1 to a key. After a conflict it continues with the state that the
// error carries.
func (f *fixture) increment(name string) error {
	kv, err := f.Get(f.ctx, f.key(name))
	for err == nil {
		var n int
		if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
			return err
		}
		_, err = f.Update(f.ctx, kv.Key, fmt.Append(nil, n+1), kv.Revision)
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		if conflict.Current == nil || conflict.Current.Revision == kv.Revision {
			return fmt.Errorf("%w, but its present state is that which was expected", conflict)
		}
		kv, err = *conflict.Current, nil
	}
	return err
}
