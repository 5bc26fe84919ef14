package watchcache_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// renamed is a form of pods: their names have a suffix.
func renamed(objs []scheme.Object) (out []scheme.Object, err error) {
	for _, obj := range objs {
		next := obj.DeepCopyObject().(scheme.Object)
		next.SetName(obj.GetName() + "-v2")
		out = append(out, next)
	}
	return out, nil
}

func byName(obj scheme.Object) fields.Set { return fields.Set{"metadata.name": obj.GetName()} }

// Concurrent readers of a form share one computation, which takes only the entries that
// have no form yet. Forms that are not used are computed again after a while.
func TestDerivedFormsAreShared(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/a")
		f.create("ns/b")
		a, b := f.latest().Get(podRoot+"ns/a"), f.latest().Get(podRoot+"ns/b")
		var sizes []int
		release := make(chan struct{})
		derive := func(entries ...*watchcache.Entry) []*watchcache.Entry {
			out, err := watchcache.Derive(t.Context(), entries, "v2", func(objs []scheme.Object) ([]scheme.Object, error) {
				sizes = append(sizes, len(objs))
				<-release
				return renamed(objs)
			}, byName)
			if err != nil {
				t.Error(err)
			}
			return out
		}
		first, second := make(chan []*watchcache.Entry, 1), make(chan []*watchcache.Entry, 1)
		go func() { first <- derive(a) }()
		synctest.Wait()
		go func() { second <- derive(b, a) }()
		synctest.Wait()
		same(t, "computed at once", []int{1, 1}, sizes)
		close(release)
		one, two := <-first, <-second
		same(t, "shared", true, one[0] == two[1])
		same(t, "order", []string{"b-v2", "a-v2"}, []string{two[0].Object().GetName(), two[1].Fields.Get("metadata.name")})
		same(t, "the entry itself", "a", a.Object().GetName())
		derive(a, b)
		same(t, "known", 2, len(sizes))
		time.Sleep(5 * time.Minute)
		derive(a, b)
		same(t, "again after a while", []int{1, 1, 2}, sizes)
	})
}

// An error, a wrong number of results and a panic reach all readers, and do not stay.
func TestDerivedFormFails(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/a")
		a := f.latest().Get(podRoot + "ns/a")
		for name, compute := range map[string]func([]scheme.Object) ([]scheme.Object, error){
			"error":    func([]scheme.Object) ([]scheme.Object, error) { return nil, errors.New("no") },
			"too many": func(objs []scheme.Object) ([]scheme.Object, error) { return append(objs, objs...), nil },
			"panic":    func([]scheme.Object) ([]scheme.Object, error) { panic("no") },
		} {
			release, failed := make(chan struct{}), make(chan error, 2)
			for range 2 {
				go func() {
					defer func() {
						if recover() != nil {
							failed <- errors.New("panic")
						}
					}()
					_, err := watchcache.Derive(t.Context(), []*watchcache.Entry{a}, "v2", func(objs []scheme.Object) ([]scheme.Object, error) {
						<-release
						return compute(objs)
					}, byName)
					failed <- err
				}()
			}
			synctest.Wait()
			close(release)
			for range 2 {
				if err := <-failed; err == nil {
					t.Errorf("%s: no error", name)
				}
			}
		}
		out, err := watchcache.Derive(t.Context(), []*watchcache.Entry{a}, "v2", renamed, byName)
		if err != nil || out[0].Object().GetName() != "a-v2" {
			t.Errorf("after errors: %v", err)
		}
	})
}
