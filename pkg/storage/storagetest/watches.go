package storagetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"podium/pkg/storage"
)

func testWatch(t *testing.T, f *fixture) {
	before := f.create("before", "1")
	w := f.watch(before)
	a := f.create("a", "1")
	b := f.create("b", "1")
	if _, err := f.Create(f.ctx, f.prefix[:len(f.prefix)-1]+"0", []byte("x")); err != nil {
		t.Fatal(err)
	}
	a2 := f.update("a", "2", a)
	b2 := f.delete("b", b)
	a3 := f.update("a", "3", a2)
	want := []storage.Event{
		f.event("a", "1", a), f.event("b", "1", b), f.event("a", "2", a2), f.event("b", "", b2), f.event("a", "3", a3),
	}
	f.same("watched", want, f.next(w, len(want)))
}

func testWatchPast(t *testing.T, f *fixture) {
	a := f.create("a", "1")
	b := f.create("b", "1")
	b2 := f.delete("b", b)
	a2 := f.update("a", "2", a)
	all := []storage.Event{f.event("a", "1", a), f.event("b", "1", b), f.event("b", "", b2), f.event("a", "2", a2)}
	for i, after := range []int64{a - 1, a, b, b2} {
		f.same(fmt.Sprintf("after %d", after), all[i:], f.next(f.watch(after), len(all)-i))
	}
}

func testWatchCompacted(t *testing.T, f *fixture) {
	first := f.create("a", "1")
	last := first
	for i := range 5 {
		last = f.update("a", fmt.Sprint(i), last)
	}
	f.compact(last)
	w, err := f.Watch(f.ctx, f.prefix, first)
	if err == nil {
		defer w.Stop()
		_, err = w.Next(f.ctx)
	}
	f.wantErr("watch from before the compaction", err, storage.ErrCompacted)
}

func testWatchStop(t *testing.T, f *fixture) {
	w := f.watch(f.create("a", "1"))
	ended := make(chan error)
	go func() {
		for {
			if _, err := w.Next(f.ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	w.Stop()
	w.Stop()
	select {
	case <-ended:
	case <-f.ctx.Done():
		t.Fatal("Next did not return after Stop")
	}

	w = f.watch(1 << 40)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err := w.Next(ctx)
	f.wantErr("Next of an ended context", err, context.Canceled)
}

func testWatchContext(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	w, err := f.Watch(ctx, f.prefix, f.create("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	cancel()
	b := f.create("b", "1")
	f.same("watched", []storage.Event{f.event("b", "1", b)}, f.next(w, 1))
}

func testWritersWatched(t *testing.T, f *fixture) {
	const writers, rounds = 5, 40
	start := f.create("start", "1")
	w := f.watch(start)
	var group sync.WaitGroup
	for n := range writers {
		group.Go(func() {
			name := fmt.Sprintf("k%d", n)
			rev, err := f.Create(f.ctx, f.key(name), []byte("0"))
			for i := 1; i < rounds && err == nil; i++ {
				rev, err = f.Update(f.ctx, f.key(name), fmt.Append(nil, i), rev)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	last, count := start, map[string]int{}
	for seen := 0; seen < writers*rounds; {
		events, err := w.Next(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.IsMark() {
				continue
			}
			seen++
			if ev.Revision <= last {
				t.Fatalf("revision %d after %d", ev.Revision, last)
			}
			last = ev.Revision
			if want := fmt.Sprint(count[ev.Key]); string(ev.Value) != want {
				t.Fatalf("%s is %s, want %s", ev.Key, ev.Value, want)
			}
			count[ev.Key]++
		}
	}
	group.Wait()
}
