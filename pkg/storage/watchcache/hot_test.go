package watchcache_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
