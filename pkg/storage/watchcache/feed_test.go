package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/storage"
	"podium/pkg/storage/memory"
	"podium/pkg/storage/watchcache"
)

// faulty is a store whose watches can be broken, and whose inner store can be
// replaced.
type faulty struct {
	mu     sync.Mutex
	inner  storage.Store
	broken bool // new watches fail
	watch  storage.Watch
}

var errBroken = errors.New("connection lost")

func (s *faulty) get() storage.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}

func (s *faulty) Get(ctx context.Context, key string) (storage.KV, error) {
	return s.get().Get(ctx, key)
}
func (s *faulty) List(ctx context.Context, prefix string, o storage.ListOptions) (storage.Page, error) {
	return s.get().List(ctx, prefix, o)
}
func (s *faulty) Create(ctx context.Context, key string, v []byte) (int64, error) {
	return s.get().Create(ctx, key, v)
}
func (s *faulty) Update(ctx context.Context, key string, v []byte, expect int64) (int64, error) {
	return s.get().Update(ctx, key, v, expect)
}
func (s *faulty) Delete(ctx context.Context, key string, expect int64) (int64, error) {
	return s.get().Delete(ctx, key, expect)
}
func (s *faulty) Revision(ctx context.Context) (int64, error)  { return s.get().Revision(ctx) }
func (s *faulty) Compact(ctx context.Context, rev int64) error { return s.get().Compact(ctx, rev) }

func (s *faulty) Watch(ctx context.Context, prefix string, after int64) (storage.Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return nil, errBroken
	}
	w, err := s.inner.Watch(ctx, prefix, after)
	s.watch = w
	return w, err
}

// cut breaks the running watch; new ones fail too until mend.
func (s *faulty) cut(stay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = stay
	if s.watch != nil {
		s.watch.Stop()
	}
}

func (s *faulty) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = false
}

func faultyBubble(t *testing.T, test func(*testing.T, *fixture, *faulty)) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{inner: memory.New()}
		f := newFixture(t, s, 0)
		f.run()
		test(t, f, s)
		f.stop()
	})
}

func TestABrokenWatchIsResumedWithoutLossOrRepetition(t *testing.T) {
	faultyBubble(t, func(t *testing.T, f *fixture, s *faulty) {
		w := f.watch(watchcache.WatchOptions{After: 1})
		var want []string
		for i := range 20 {
			name := fmt.Sprintf("ns/p%d", i)
			want = append(want, fmt.Sprintf("ADDED %s@%d", name, f.create(name)))
			s.cut(i%3 == 0)
			want = append(want, fmt.Sprintf("DELETED %s@%d", name, f.delete(name)))
			s.mend()
		}
		same(t, "watched", want, f.next(w, len(want)))
		f.quiet(w)
		if n := f.latest().Len(); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

func TestWatchersEndWhenEventsAreMissing(t *testing.T) {
	faultyBubble(t, func(t *testing.T, f *fixture, s *faulty) {
		a := f.create("ns/a")
		b := f.create("ns/b")
		w := f.watch(watchcache.WatchOptions{After: 1})
		f.next(w, 2)
		before := f.latest().Get(podRoot + "ns/b")

		s.cut(true)
		f.delete("ns/a")
		c := f.create("ns/c")
		if err := f.store.Compact(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		s.mend()

		same(t, "the caches show the present", []string{fmt.Sprintf("ns/b@%d", b), fmt.Sprintf("ns/c@%d", c)}, names(f.latest()))
		if f.latest().Get(podRoot+"ns/b") != before {
			t.Error("what did not change was decoded again")
		}
		_, err := w.Next(t.Context())
		wantErr(t, "the watcher from before", err, storage.ErrCompacted)
		_, err = f.pods.Watch(t.Context(), watchcache.WatchOptions{After: a})
		wantErr(t, "resumed there", err, storage.ErrCompacted)
		w = f.watch(watchcache.WatchOptions{After: c})
		d := f.create("ns/d")
		same(t, "begun anew", []string{fmt.Sprintf("ADDED ns/d@%d", d)}, f.next(w, 1))
	})
}

func TestAStoreRestoredFromABackupIsNoticed(t *testing.T) {
	faultyBubble(t, func(t *testing.T, f *fixture, s *faulty) {
		for i := range 10 {
			f.create(fmt.Sprintf("ns/p%d", i))
		}
		w := f.watch(watchcache.WatchOptions{After: -1})
		f.latest()
		s.mu.Lock()
		s.inner = memory.New()
		s.mu.Unlock()
		f.create("ns/restored")
		if _, err := f.pods.Latest(t.Context()); err == nil {
			t.Error("a read shows the store that was")
		}
		time.Sleep(time.Second)
		same(t, "what is there now", []string{"ns/restored@2"}, names(f.latest()))
		for {
			if _, err := w.Next(t.Context()); err != nil {
				wantErr(t, "the watcher from before", err, storage.ErrCompacted)
				break
			}
		}
	})
}

func TestWatchersFromBeforeARestartFindWhatTheyMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		first := newFixture(t, store, 0)
		first.run()
		var seen int64
		for i := range 200 {
			rev := first.create(fmt.Sprintf("ns/p%d", i))
			if i == 149 {
				seen = rev
			}
		}
		first.stop()

		second := newFixture(t, store, 0)
		second.run()
		w := second.watch(watchcache.WatchOptions{After: seen})
		for i, got := range second.next(w, 50) {
			if want := fmt.Sprintf("ADDED ns/p%d@%d", 150+i, seen+1+int64(i)); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		second.stop()
	})
}

// Random writes, watchers that start, stop and resume, and broken watches: what
// each watcher has received always matches the store.
func TestWatchersAgreeWithTheStore(t *testing.T) {
	selectors := []string{"", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n1", "metadata.namespace=a", "metadata.name=p3"}
	for seed := range uint64(20) {
		faultyBubble(t, func(t *testing.T, f *fixture, s *faulty) {
			rng := rand.New(rand.NewPCG(seed, 1))
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			var readers []*reader
			for _, text := range selectors {
				r := &reader{f: f, opts: watchcache.WatchOptions{Fields: selectFields(text), Bookmarks: true}, state: map[string]int64{}}
				readers = append(readers, r)
				delay := time.Duration(rng.IntN(1000)) * time.Millisecond
				group.Go(func() { r.run(ctx, delay) })
			}
			for range 400 {
				f.randomWrite(rng)
				switch rng.IntN(20) {
				case 0:
					s.cut(rng.IntN(2) == 0)
				case 1:
					s.mend()
				case 2:
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
			}
			s.mend()
			snap := f.latest()
			time.Sleep(3 * time.Minute) // until bookmarks bring idle watchers to the newest revision
			cancel()
			group.Wait()
			for i, r := range readers {
				want := map[string]int64{}
				snap.Ascend(podRoot, "", func(e *watchcache.Entry) bool {
					if r.opts.Fields.Matches(&e.Fields) {
						want[e.Key] = e.Revision
					}
					return true
				})
				same(t, fmt.Sprintf("seed %d, watcher of %q", seed, selectors[i]), want, r.state)
				if r.delivered != snap.Revision {
					t.Errorf("seed %d: watcher of %q has received up to %d of %d", seed, selectors[i], r.delivered, snap.Revision)
				}
			}
		})
	}
}

func (f *fixture) randomWrite(rng *rand.Rand) {
	name := fmt.Sprintf("%c/p%d", 'a'+rng.IntN(2), rng.IntN(6))
	node := onNode([]string{"", "n1", "n2"}[rng.IntN(3)])
	_, err := f.store.Get(f.t.Context(), podRoot+name)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		f.create(name, node)
	case rng.IntN(3) == 0:
		f.delete(name)
	default:
		f.update(name, node)
	}
}

// reader follows a watch, and begins another where it left off now and then.
type reader struct {
	f         *fixture
	opts      watchcache.WatchOptions
	state     map[string]int64
	delivered int64
}

func (r *reader) run(ctx context.Context, delay time.Duration) {
	time.Sleep(delay)
	opts := r.opts
	opts.Initial, opts.Fresh = true, true
	for ctx.Err() == nil {
		w, err := r.f.pods.Watch(ctx, opts)
		if errors.Is(err, context.DeadlineExceeded) {
			continue // the store's watch was broken for longer than a request waits
		}
		if err != nil {
			if ctx.Err() == nil {
				r.f.t.Error(err)
			}
			return
		}
		for n := 0; n < 50; {
			events, err := w.Next(ctx)
			if err != nil {
				break
			}
			for _, ev := range events {
				r.see(ev)
				n++
			}
		}
		w.Stop()
		opts = r.opts
		opts.After = r.delivered
	}
}

func (r *reader) see(ev watchcache.WatchEvent) {
	if ev.Revision < r.delivered && (ev.Type == watch.Bookmark || r.state == nil) {
		r.f.t.Errorf("%s after %d", line(ev), r.delivered)
	}
	if ev.Type == watch.Bookmark {
		r.delivered = max(r.delivered, ev.Revision)
		return
	}
	old, had := r.state[ev.Entry.Key]
	switch {
	case had != (ev.Type != watch.Added):
		r.f.t.Errorf("%s, but there was one: %v", line(ev), had)
	case had && ev.Revision <= old:
		r.f.t.Errorf("%s after %d", line(ev), old)
	}
	if ev.Type == watch.Deleted {
		delete(r.state, ev.Entry.Key)
	} else {
		r.state[ev.Entry.Key] = ev.Entry.Revision
	}
	if r.delivered > 0 { // initial events come in key order, not in revision order
		r.delivered = ev.Revision
	}
}
