package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/storage"
	"podium/pkg/storage/memory"
	"podium/pkg/storage/watchcache"
)

func same(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestLatestShowsEveryAcknowledgedWrite(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var group sync.WaitGroup
		for w := range 8 {
			group.Go(func() {
				for i := range 50 {
					name := fmt.Sprintf("ns/p%d-%d", w, i)
					rev := f.create(name)
					s := f.latest()
					if e := s.Get(podRoot + name); e == nil || e.Revision != rev || s.Revision < rev {
						t.Errorf("%s, written at %d, is not in the snapshot of %d", name, rev, s.Revision)
						return
					}
				}
			})
		}
		group.Wait()
		if n := f.latest().Len(); n != 400 {
			t.Errorf("%d objects", n)
		}
	})
}

func TestASnapshotNeverChanges(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		a := f.create("ns/a", onNode("n1"))
		b := f.create("ns/b", onNode("n1"))
		s := f.latest()
		f.update("ns/a", onNode("n2"))
		f.delete("ns/b")
		c := f.create("ns/c", onNode("n1"))
		now := f.latest()
		same(t, "before", []string{fmt.Sprintf("ns/a@%d", a), fmt.Sprintf("ns/b@%d", b)}, names(s))
		same(t, "before, by node", 2, count(s, "spec.nodeName", "n1"))
		same(t, "after", []string{fmt.Sprintf("ns/a@%d", c-2), fmt.Sprintf("ns/c@%d", c)}, names(now))
		for _, node := range []string{"n1", "n2"} {
			same(t, "after, on "+node, 1, count(now, "spec.nodeName", node))
		}
		same(t, "by a field without index", 1, count(now, "metadata.name", "c"))
	})
}

func count(s *watchcache.Snapshot, field, value string) (n int) {
	for range s.ByField(field, value) {
		n++
	}
	return n
}

func TestAscendBeginsAfterAKeyAndStaysUnderItsPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for _, name := range []string{"a/1", "a/2", "a/3", "a-b/1", "b/1"} {
			f.create(name)
		}
		s := f.latest()
		for _, row := range []struct {
			prefix, after string
			want          []string
		}{
			{"a/", "", []string{"a/1", "a/2", "a/3"}},
			{"a/", podRoot + "a/1", []string{"a/2", "a/3"}},
			{"a/", podRoot + "a/2x", []string{"a/3"}},
			{"a/", podRoot + "a-b/1", []string{"a/1", "a/2", "a/3"}},
			{"", podRoot + "a/3", []string{"b/1"}},
			{"c/", "", nil},
		} {
			var got []string
			s.Ascend(podRoot+row.prefix, row.after, func(e *watchcache.Entry) bool {
				got = append(got, e.Key[len(podRoot):])
				return true
			})
			same(t, fmt.Sprintf("under %q after %q", row.prefix, row.after), row.want, got)
		}
	})
}

func TestAtShowsAnExactRevision(t *testing.T) {
	for name, row := range map[string]struct {
		reason  string
		history int
	}{
		"FromHistory": {"the changes since are undone", 100},
		"FromStore":   {"history is too short, the store still knows", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory.New(), row.history)
				f.run()
				a := f.create("ns/a", onNode("n1"))
				b := f.create("ns/b")
				a2 := f.update("ns/a", onNode("n2"))
				b2 := f.delete("ns/b")
				for i := range 30 {
					f.create(fmt.Sprintf("ns/c%d", i))
				}
				for rev, want := range map[int64][]string{
					a:  {fmt.Sprintf("ns/a@%d", a)},
					b:  {fmt.Sprintf("ns/a@%d", a), fmt.Sprintf("ns/b@%d", b)},
					a2: {fmt.Sprintf("ns/a@%d", a2), fmt.Sprintf("ns/b@%d", b)},
					b2: {fmt.Sprintf("ns/a@%d", a2)},
				} {
					for range 2 {
						s, err := f.pods.At(t.Context(), rev)
						if err != nil {
							t.Fatal(err)
						}
						same(t, fmt.Sprintf("at %d", rev), want, names(s))
						if s.Revision != rev {
							t.Errorf("the snapshot of %d says %d", rev, s.Revision)
						}
					}
				}
				s, err := f.pods.At(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}
				same(t, "by node, back then", 1, count(s, "spec.nodeName", "n1"))
				_, err = f.pods.At(t.Context(), b2+1000)
				wantErr(t, "a revision to come", err, storage.ErrFuture)
				f.stop()
			})
		})
	}
}

func TestAnExactRevisionExpires(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		rev := f.create("ns/a")
		last := f.update("ns/a")
		if err := f.store.Compact(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		for range 20 { // reading a snapshot does not extend its lifetime
			if _, err := f.pods.At(t.Context(), rev); err != nil {
				wantErr(t, "in the end", err, storage.ErrCompacted)
				return
			}
			time.Sleep(30 * time.Second)
		}
		t.Error("a revision the store has forgotten is still shown after ten minutes")
	})
}

// A list of which nothing has changed since expires, too, when the store has compacted
// its revision.
func TestAnUnchangedRevisionExpires(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		rev := f.create("ns/a")
		other, err := f.store.Create(t.Context(), "/registry/others/x", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.pods.AtLeast(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if s, err := f.pods.At(t.Context(), rev); err != nil || s.Len() != 1 {
			t.Fatalf("before: %v", err)
		}
		if err := f.store.Compact(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		_, err = f.pods.At(t.Context(), rev)
		wantErr(t, "in the end", err, storage.ErrCompacted)
	})
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestAtLeastWaitsForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		rev := f.create("ns/a")
		go func() {
			time.Sleep(2 * time.Second)
			f.create("ns/b")
		}()
		s, err := f.pods.AtLeast(t.Context(), rev+1)
		if err != nil || s.Len() != 2 {
			t.Fatalf("%d objects, %v", s.Len(), err)
		}
		begin := time.Now()
		_, err = f.pods.AtLeast(t.Context(), rev+2)
		wantErr(t, "a revision that does not come", err, storage.ErrFuture)
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("waited %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = f.pods.AtLeast(ctx, rev+2)
		wantErr(t, "the caller gives up first", err, context.DeadlineExceeded)
	})
}

func TestAConsistentReadDoesNotHangOnWritesOutsideThePrefix(t *testing.T) {
	for name, store := range map[string]func() storage.Store{
		"Marks":   func() storage.Store { return memory.New() },
		"NoMarks": func() storage.Store { return noMarks{memory.New()} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, store(), 0)
				if _, err := f.store.Create(t.Context(), "/before", []byte("x")); err != nil {
					t.Fatal(err)
				}
				f.run()
				for i := range 3 {
					rev, err := f.store.Create(t.Context(), fmt.Sprintf("/elsewhere/%d", i), []byte("x"))
					if err != nil {
						t.Fatal(err)
					}
					begin := time.Now()
					if s := f.latest(); s.Revision < rev {
						t.Errorf("snapshot of %d after a write at %d", s.Revision, rev)
					}
					if d := time.Since(begin); d > 200*time.Millisecond {
						t.Errorf("took %v", d)
					}
				}
				f.stop()
			})
		})
	}
}

// noMarks is a store whose watches do not support bookmarks.
type noMarks struct{ storage.Store }

func (s noMarks) Watch(ctx context.Context, prefix string, after int64) (storage.Watch, error) {
	w, err := s.Store.Watch(ctx, prefix, after)
	return markless{w}, err
}

type markless struct{ storage.Watch }

func (markless) Mark(context.Context) error { return errors.ErrUnsupported }

func TestEncodingsAreMadeOnceAndDroppedWhenCold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/a")
		e := f.latest().Get(podRoot + "ns/a")
		first, err := e.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := e.JSON(); &again.Bytes()[0] != &first.Bytes()[0] {
			t.Error("JSON was made twice")
		}
		time.Sleep(40 * time.Second)
		if again, _ := e.JSON(); &again.Bytes()[0] != &first.Bytes()[0] {
			t.Error("dropped although it was used lately")
		}
		time.Sleep(3 * time.Minute)
		again, _ := e.JSON()
		if &again.Bytes()[0] == &first.Bytes()[0] {
			t.Error("kept although it was not used for minutes")
		}
		same(t, "the same bytes again", string(first.Bytes()), string(again.Bytes()))
	})
}

func TestAnObjectThatCannotBeDecodedHidesNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		if _, err := f.store.Create(t.Context(), podRoot+"ns/bad", []byte("not a pod")); err != nil {
			t.Fatal(err)
		}
		good := f.create("ns/good")
		same(t, "visible", []string{fmt.Sprintf("ns/good@%d", good)}, names(f.latest()))
		rev, err := f.store.Update(t.Context(), podRoot+"ns/good", []byte("not a pod"), good)
		if err != nil {
			t.Fatal(err)
		}
		s := f.latest()
		same(t, "the last good state stays", []string{fmt.Sprintf("ns/good@%d", good)}, names(s))
		if s.Revision < rev {
			t.Errorf("the cache stands still at %d", s.Revision)
		}
	})
}

func TestReadyAfterTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory.New(), 0)
		f.create("ns/a")
		if f.feed.Ready() == nil {
			t.Error("ready before Run")
		}
		_, err := f.pods.AtLeast(t.Context(), 0)
		if err == nil || errors.Is(err, storage.ErrFuture) {
			t.Errorf("a read before the first list: %v", err)
		}
		f.run()
		synctest.Wait()
		if err := f.feed.Ready(); err != nil {
			t.Error(err)
		}
		f.stop()
	})
}

func TestEntriesKnowTheirFields(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/a", onNode("n1"), labelled("app", "web"))
		e := f.latest().Get(podRoot + "ns/a")
		for name, want := range map[string]string{"metadata.name": "a", "metadata.namespace": "ns", "spec.nodeName": "n1", "status.phase": ""} {
			same(t, name, want, e.Fields.Get(name))
			same(t, name, true, e.Fields.Has(name))
		}
		same(t, "another field", false, e.Fields.Has("spec.hostNetwork"))
		same(t, "labels", "web", e.Labels.Get("app"))
		same(t, "object", "n1", e.Object().(*corev1.Pod).Spec.NodeName)
	})
}
