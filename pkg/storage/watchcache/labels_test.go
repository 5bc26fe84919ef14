package watchcache_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"podium/pkg/storage/watchcache"
)

// byLabel returns the names of the objects whose label has a value, and whether the label is
// indexed.
func byLabel(s *watchcache.Snapshot, label, value, prefix, after string) (got []string, indexed bool) {
	indexed = s.ByLabel(label, value, podRoot+prefix, after, func(e *watchcache.Entry) bool {
		got = append(got, fmt.Sprintf("%s@%d", e.Key[len(podRoot):], e.Revision))
		return true
	})
	return got, indexed
}

// scanLabel is byLabel without an index.
func scanLabel(s *watchcache.Snapshot, label, value, prefix, after string) (got []string) {
	s.Ascend(podRoot+prefix, after, func(e *watchcache.Entry) bool {
		if has, ok := e.Labels.Lookup(label); ok && has == value {
			got = append(got, fmt.Sprintf("%s@%d", e.Key[len(podRoot):], e.Revision))
		}
		return true
	})
	return got
}

// scanUntilIndexed scans for a label as often as needed for an index.
func (f *fixture) scanUntilIndexed(label string) {
	f.t.Helper()
	for range 11 {
		s := f.latest()
		if _, ok := byLabel(s, label, "", "", ""); ok {
			return
		}
		f.pods.Scanned(s, label, s.Len())
	}
	f.t.Fatalf("label %q is not indexed after eleven scans", label)
}

func (f *fixture) fill(n int) {
	for i := range n {
		f.create(fmt.Sprintf("ns-%d/pod-%d", i%3, i), labelled("shard", fmt.Sprint(i%10)))
	}
}

func TestAnIndexedLabelShowsWhatAScanShows(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fill(1000)
		f.scanUntilIndexed("shard")
		before := f.latest()
		want := scanLabel(before, "shard", "7", "", "")
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 300 {
			n := rng.IntN(1000)
			name := fmt.Sprintf("ns-%d/pod-%d", n%3, n)
			switch _, err := f.store.Get(t.Context(), podRoot+name); {
			case err != nil:
				f.create(name, labelled("shard", fmt.Sprint(i%10)))
			case i%4 == 0:
				f.delete(name)
			case i%4 == 1:
				f.update(name) // without the label
			default:
				f.update(name, labelled("shard", fmt.Sprint(rng.IntN(10))))
			}
			s, value, prefix := f.latest(), fmt.Sprint(i%10), []string{"", "ns-1/", "none/"}[i%3]
			after := []string{"", podRoot + "ns-1/pod-5"}[i%2]
			got, indexed := byLabel(s, "shard", value, prefix, after)
			if !indexed {
				t.Fatal("the index is gone")
			}
			same(t, fmt.Sprintf("shard %s under %q after %q", value, prefix, after), scanLabel(s, "shard", value, prefix, after), got)
		}
		got, _ := byLabel(before, "shard", "7", "", "")
		same(t, "the snapshot from before", want, got)
	})
}

func TestALabelIsIndexedWhileObjectsChange(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fill(1000)
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for i := w; i < 1000; i += 4 {
					f.update(fmt.Sprintf("ns-%d/pod-%d", i%3, i), labelled("shard", fmt.Sprint(i%7)))
				}
			})
		}
		all.Go(func() { f.scanUntilIndexed("shard") })
		all.Wait()
		s := f.latest()
		for i := range 10 {
			got, _ := byLabel(s, "shard", fmt.Sprint(i), "", "")
			same(t, fmt.Sprint("shard ", i), scanLabel(s, "shard", fmt.Sprint(i), "", ""), got)
		}
	})
}

func TestAnUnusedIndexOfALabelIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fill(1000)
		f.scanUntilIndexed("shard")
		for range 3 {
			time.Sleep(29 * time.Second)
			if _, indexed := byLabel(f.latest(), "shard", "1", "", ""); !indexed {
				t.Fatal("an index in use was dropped")
			}
		}
		time.Sleep(65 * time.Second)
		if _, indexed := byLabel(f.latest(), "shard", "1", "", ""); indexed {
			t.Error("an unused index was kept")
		}
	})
}

func TestFewLabelsAreIndexed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fill(1000)
		for i := range 100 {
			s := f.latest()
			for range 11 {
				f.pods.Scanned(s, fmt.Sprint("label-", i), s.Len())
			}
		}
		indexed, s := 0, f.latest()
		for i := range 100 {
			if _, ok := byLabel(s, fmt.Sprint("label-", i), "", "", ""); ok {
				indexed++
			}
		}
		same(t, "indexed labels", 4, indexed)
	})
}
