package watchcache_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/storage"
	"podium/pkg/storage/memory"
	"podium/pkg/storage/watchcache"
)

func selectFields(text string) fields.Selector { return fields.ParseSelectorOrDie(text) }

func selectLabels(text string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// The same changes, received by watchers with different options.
func TestWatchersSeeWhatTheySelect(t *testing.T) {
	story := func(f *fixture) {
		f.create("a/x", onNode("n1"))                                                // @2
		f.create("b/x", labelled("app", "web"))                                      // @3
		f.update("b/x", onNode("n1"))                                                // @4
		f.update("a/x", onNode("n2"))                                                // @5
		f.delete("b/x")                                                              // @6
		f.create("a/xx")                                                             // @7
		f.delete("a/x")                                                              // @8
		f.create("z/end", onNode("n1"), labelled("app", "web"), labelled("end", "")) // @9
		f.create("a/end", onNode("n2"))                                              // @10
	}
	for name, row := range map[string]struct {
		reason string
		opts   watchcache.WatchOptions
		want   []string
	}{
		"Everything": {
			reason: "no narrowing",
			want: []string{"ADDED a/x@2", "ADDED b/x@3", "MODIFIED b/x@4", "MODIFIED a/x@5", "DELETED b/x@6",
				"ADDED a/xx@7", "DELETED a/x@8", "ADDED z/end@9", "ADDED a/end@10"},
		},
		"Namespace": {
			reason: "found by the folder of the key",
			opts:   watchcache.WatchOptions{Prefix: podRoot + "a/"},
			want:   []string{"ADDED a/x@2", "MODIFIED a/x@5", "ADDED a/xx@7", "DELETED a/x@8", "ADDED a/end@10"},
		},
		"NamespaceField": {
			reason: "the same by a field selector",
			opts:   watchcache.WatchOptions{Fields: selectFields("metadata.namespace=a")},
			want:   []string{"ADDED a/x@2", "MODIFIED a/x@5", "ADDED a/xx@7", "DELETED a/x@8", "ADDED a/end@10"},
		},
		"OneObject": {
			reason: "a key is exact: a/xx is another object",
			opts:   watchcache.WatchOptions{Prefix: podRoot + "a/x"},
			want:   []string{"ADDED a/x@2", "MODIFIED a/x@5", "DELETED a/x@8"},
		},
		"OneName": {
			reason: "as kubectl get -w asks for one object",
			opts:   watchcache.WatchOptions{Prefix: podRoot + "a/", Fields: selectFields("metadata.name=x")},
			want:   []string{"ADDED a/x@2", "MODIFIED a/x@5", "DELETED a/x@8"},
		},
		"NameInAllNamespaces": {
			reason: "no bucket for it, the selector decides",
			opts:   watchcache.WatchOptions{Fields: selectFields("metadata.name=x")},
			want:   []string{"ADDED a/x@2", "ADDED b/x@3", "MODIFIED b/x@4", "MODIFIED a/x@5", "DELETED b/x@6", "DELETED a/x@8"},
		},
		"Node": {
			reason: "an indexed field: coming to the node is Added, leaving it Deleted with the state before",
			opts:   watchcache.WatchOptions{Fields: selectFields("spec.nodeName=n1")},
			want:   []string{"ADDED a/x@2", "ADDED b/x@4", "DELETED a/x@5", "DELETED b/x@6", "ADDED z/end@9"},
		},
		"NodeInNamespace": {
			reason: "the field's bucket is not the only condition",
			opts:   watchcache.WatchOptions{Prefix: podRoot + "a/", Fields: selectFields("spec.nodeName=n2")},
			want:   []string{"ADDED a/x@5", "DELETED a/x@8", "ADDED a/end@10"},
		},
		"NoNode": {
			reason: "an empty value is a value: the scheduler's watch",
			opts:   watchcache.WatchOptions{Fields: selectFields("spec.nodeName=")},
			want:   []string{"ADDED b/x@3", "DELETED b/x@4", "ADDED a/xx@7"},
		},
		"NotTheNode": {
			reason: "an inequality has no bucket",
			opts:   watchcache.WatchOptions{Fields: selectFields("spec.nodeName!=n1")},
			want:   []string{"ADDED b/x@3", "DELETED b/x@4", "ADDED a/x@5", "ADDED a/xx@7", "DELETED a/x@8", "ADDED a/end@10"},
		},
		"Label": {
			reason: "losing the label is Deleted",
			opts:   watchcache.WatchOptions{Labels: selectLabels("app=web")},
			want:   []string{"ADDED b/x@3", "DELETED b/x@4", "ADDED z/end@9"},
		},
		"After": {
			reason: "exclusive",
			opts:   watchcache.WatchOptions{After: 7},
			want:   []string{"DELETED a/x@8", "ADDED z/end@9", "ADDED a/end@10"},
		},
		"AfterSomethingToCome": {
			reason: "what is before is not shown, whoever tells it first",
			opts:   watchcache.WatchOptions{After: 9},
			want:   []string{"ADDED a/end@10"},
		},
	} {
		if row.opts.After == 0 {
			row.opts.After = 1
		}
		live := func(t *testing.T, f *fixture) {
			w := f.watch(row.opts)
			story(f)
			same(t, row.reason, row.want, f.next(w, len(row.want)))
			f.quiet(w)
		}
		past := func(t *testing.T, f *fixture) {
			story(f)
			synctest.Wait()
			w := f.watch(row.opts)
			same(t, row.reason, row.want, f.next(w, len(row.want)))
			f.quiet(w)
		}
		t.Run(name+"/Live", func(t *testing.T) { bubble(t, live) })
		t.Run(name+"/FromHistory", func(t *testing.T) { bubble(t, past) })
	}
}

// quiet checks that no more events arrive.
func (f *fixture) quiet(w *watchcache.Watcher) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return
		}
		for _, ev := range events {
			f.t.Errorf("then also %s", line(ev))
		}
	}
}

func TestInitialEvents(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var want []string
		for i := range 1200 { // more than one batch
			name := fmt.Sprintf("ns/p%04d", i)
			changes := []change{}
			if i%2 == 0 {
				changes = append(changes, onNode("n1"))
			}
			rev := f.create(name, changes...)
			if i%2 == 0 {
				want = append(want, fmt.Sprintf("ADDED %s@%d", name, rev))
			}
		}
		w := f.watch(watchcache.WatchOptions{Initial: true, Fresh: true, Fields: selectFields("spec.nodeName=n1")})
		last := f.create("ns/live", onNode("n1"))
		want = append(want, fmt.Sprintf("INITIAL END@%d", last-1), fmt.Sprintf("ADDED ns/live@%d", last))
		same(t, "the present, its end, what follows", want, f.next(w, len(want)))
		f.quiet(w)
	})
}

func TestAWatchFromNow(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/a")
		f.latest()
		w := f.watch(watchcache.WatchOptions{After: -1})
		rev := f.create("ns/b")
		same(t, "only what follows", []string{fmt.Sprintf("ADDED ns/b@%d", rev)}, f.next(w, 1))
	})
}

func TestSlowWatcherIsTerminated(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		slow := f.watch(watchcache.WatchOptions{After: -1})
		quick := f.watch(watchcache.WatchOptions{After: -1})
		const n = 5001
		for i := range n {
			f.create(fmt.Sprintf("ns/p%d", i))
			if i%100 == 50 { // never the last: there is something left to see
				f.next(quick, 1)
			}
		}
		f.latest()
		_, err := slow.Next(t.Context())
		wantErr(t, "the slow one", err, watchcache.ErrSlow)
		if lines := f.next(quick, 1); lines[0] == "" {
			t.Error("the quick one sees nothing")
		}
		resumed := f.watch(watchcache.WatchOptions{After: 1})
		if lines := f.next(resumed, n); len(lines) != n {
			t.Errorf("resumed, it sees %d events", len(lines))
		}
	})
}

func TestAStalledWatcherIsCut(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w := f.watch(watchcache.WatchOptions{After: -1})
		f.create("ns/a")
		f.next(w, 1)
		time.Sleep(10 * time.Minute) // a watcher without queued events is not stalled
		f.create("ns/b")
		f.next(w, 1)
		f.create("ns/c")
		time.Sleep(2 * time.Minute)
		_, err := w.Next(t.Context())
		wantErr(t, "after two minutes without reading", err, watchcache.ErrSlow)
	})
}

func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		w := f.watch(watchcache.WatchOptions{After: -1})
		go func() {
			time.Sleep(time.Second)
			w.Stop()
			w.Stop()
		}()
		_, err := w.Next(t.Context())
		wantErr(t, "stopped", err, io.EOF)
	})
}

func TestBookmarks(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		w, err := f.pods.Watch(ctx, watchcache.WatchOptions{After: -1, Bookmarks: true, Fields: selectFields("spec.nodeName=n1")})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		begin := time.Now()
		var at []time.Duration
		var last int64
		for {
			rev := f.create(fmt.Sprintf("ns/p%d", len(at))) // not selected
			events, err := w.Next(ctx)
			if err != nil {
				wantErr(t, "the end", err, context.DeadlineExceeded)
				break
			}
			if len(events) != 1 || events[0].Type != watch.Bookmark || events[0].InitialEnd {
				t.Fatalf("got %v", events)
			}
			if last = events[0].Revision; last != rev {
				t.Errorf("the bookmark says %d, the store is at %d", last, rev)
			}
			at = append(at, time.Since(begin))
		}
		if len(at) < 4 || at[0] > time.Minute || at[1] > 2*time.Minute {
			t.Errorf("bookmarks at %v, want two in two minutes and one shortly before the end", at)
		}
		if before := 150*time.Second - at[2]; before != 2*time.Second {
			t.Errorf("the last regular one came %v before the end", before)
		}
	})
}

func TestAFrameIsMadeOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		all := f.watch(watchcache.WatchOptions{After: 1})
		node := f.watch(watchcache.WatchOptions{After: 1, Fields: selectFields("spec.nodeName=n1")})
		f.create("ns/a", onNode("n1"))
		f.update("ns/a", onNode("n2")) // modified for the one, deleted for the other
		made := 0
		frames := map[string]bool{}
		for _, w := range []*watchcache.Watcher{all, node, f.watch(watchcache.WatchOptions{After: 1})} {
			for got := 0; got < 2; {
				events, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, ev := range events {
					got++
					frame := ev.Frame("json", func() []byte {
						made++
						return fmt.Append(nil, line(ev))
					})
					frames[string(frame)] = true
					if string(frame) != line(ev) {
						t.Errorf("the frame of %s is %s", line(ev), frame)
					}
				}
			}
		}
		if made != 3 || len(frames) != 3 {
			t.Errorf("%d frames were made, %d are different; want 3", made, len(frames))
		}
	})
}

func TestHistoryIsBoundedByNumberAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory.New(), 10)
		f.run()
		begins := func(after int64) error {
			w, err := f.pods.Watch(t.Context(), watchcache.WatchOptions{After: after})
			if err == nil {
				w.Stop()
			}
			return err
		}
		first := f.create("ns/p")
		for range 50 {
			f.update("ns/p")
		}
		f.latest()
		if err := begins(first); err != nil {
			t.Errorf("in busy times more than the limit is kept: %v", err)
		}
		time.Sleep(2 * time.Minute)
		last := f.update("ns/p")
		f.latest()
		wantErr(t, "once it is quiet, the limit holds", begins(first), storage.ErrCompacted)
		if err := begins(last - 5); err != nil {
			t.Errorf("within the limit: %v", err)
		}
		time.Sleep(10 * time.Minute)
		wantErr(t, "what is old goes even if it is little", begins(last-5), storage.ErrCompacted)
		if err := begins(last); err != nil {
			t.Errorf("nothing happened since: %v", err)
		}
		f.stop()
	})
}
