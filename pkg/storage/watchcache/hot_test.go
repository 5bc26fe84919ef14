package watchcache_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
	"podium/pkg/storage/pieces"
	"podium/pkg/storage/watchcache"
)

// Decoded objects are dropped after many others were decoded, and decoding the
// message again yields an equal object.
func TestObjectsAreMadeAgainFromTheirMessage(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("ns/first", onNode("n1"), labelled("a", "b"))
		e := f.latest().Get(podRoot + "ns/first")
		before := e.Object().(*corev1.Pod)
		same(t, "used again", true, e.Object().(*corev1.Pod) == before)
		for i := range 2000 {
			f.create(fmt.Sprintf("ns/p%d", i))
		}
		e = f.latest().Get(podRoot + "ns/first")
		again := e.Object().(*corev1.Pod)
		same(t, "kept all the time", false, again == before)
		same(t, "object", before, again)
		same(t, "the new one is kept", true, e.Object().(*corev1.Pod) == again)

		w := f.watch(watchcache.WatchOptions{After: e.Revision})
		f.next(w, 2000)
		f.delete("ns/first")
		same(t, "deleted", 1, len(f.next(w, 1)))
	})
}

// Few large objects stay decoded, and have a second encoding.
func TestLargeObjectsAreNotKeptTwice(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		large := func(p *corev1.Pod) { p.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)} }
		f.create("ns/first", large)
		before := f.latest().Get(podRoot + "ns/first").Object().(*corev1.Pod)
		for i := range 70 {
			f.create(fmt.Sprintf("ns/p%d", i), large)
		}
		f.create("ns/small")
		first := f.latest().Get(podRoot + "ns/first")
		again := first.Object().(*corev1.Pod)
		same(t, "kept all the time", false, again == before)
		same(t, "object", before, again)

		keeps := func(name string) bool { return keepsJSON(t, f.latest().Get(podRoot+"ns/"+name)) }
		same(t, "the first large encoding is kept", true, keeps("first"))
		for i := range 70 {
			keeps(fmt.Sprintf("p%d", i))
		}
		same(t, "one beyond the bound is kept", false, keeps("p69"))
		same(t, "the encoding of a small object is kept", true, keeps("small"))
		f.delete("ns/first")
		for i := range 30 {
			f.delete(fmt.Sprintf("ns/p%d", i))
		}
		time.Sleep(time.Minute) // until a sweep has counted what is left
		same(t, "one is kept that has room again", true, keeps("p69"))
	})
}

func keepsJSON(t *testing.T, e *watchcache.Entry) bool {
	t.Helper()
	a, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "encoding", string(a.Bytes()), string(b.Bytes()))
	return &a.Bytes()[0] == &b.Bytes()[0]
}

// Objects that the same programs have written share the fields that these own.
func TestEncodingsShareManagedFields(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var names []string
		for i := range 200 {
			raw := fmt.Sprintf(`{"f:status":{"f:podIPs":{".":{},"k:{\"ip\":\"10.0.0.%d\"}":{}}%s}}`, i, strings.Repeat(`,"f:field":{}`, 600))
			f.create(fmt.Sprintf("ns/p%d", i), func(p *corev1.Pod) {
				p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(raw)}}
			})
			names = append(names, fmt.Sprintf("%sns/p%d", podRoot, i))
		}
		s := f.latest()
		var whole int
		heap := grown(func() (kept any) {
			all := make([]pieces.Text, len(names))
			for i, name := range names {
				e := s.Get(name)
				text, err := e.JSON()
				if err != nil {
					t.Fatal(err)
				}
				want, err := scheme.BareJSON(e.Object())
				if err != nil || !text.Equal(want) {
					t.Fatalf("%v: %s, want %s", err, text.Bytes(), want)
				}
				all[i], whole = text, whole+text.Len()
			}
			return all
		})
		if heap > whole/4 {
			t.Errorf("encodings of %d bytes take %d", whole, heap)
		}
	})
}

// grown returns by how many bytes f makes the heap grow.
func grown(f func() (kept any)) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}
