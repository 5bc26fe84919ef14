package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/memory"
	"podium/pkg/storage/watchcache"
)

const (
	root    = "/registry/"
	podRoot = "/registry/pods/"
)

// fixture is a running feed with a cache of pods over a store.
type fixture struct {
	t      testing.TB
	scheme *scheme.Scheme
	store  storage.Store
	feed   *watchcache.Feed
	pods   *watchcache.Cache
	stop   func()
}

// bubble runs a test in virtual time on a memory store.
func bubble(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory.New(), 0)
		f.run()
		test(t, f)
		f.stop()
	})
}

func newFixture(t testing.TB, store storage.Store, history int) *fixture {
	f := &fixture{t: t, scheme: scheme.New(), store: store}
	f.feed = watchcache.NewFeed(store, root, slog.New(slog.DiscardHandler))
	pods, err := f.feed.Add(t.Context(), watchcache.Config{
		Kind:    scheme.KindOf[*corev1.Pod](f.scheme),
		Prefix:  podRoot,
		Decode:  f.decode,
		Restore: revive,
		Fields:  podFields,
		Indexed: []string{"spec.nodeName"},
		History: history,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.pods = pods
	return f
}

func podFields(obj scheme.Object) fields.Set {
	pod := obj.(*corev1.Pod)
	return fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase)}
}

func (f *fixture) decode(kv storage.KV) (scheme.Object, error) {
	obj, _, err := f.scheme.Decode(kv.Value, scheme.Protobuf, nil)
	if err != nil {
		return nil, err
	}
	out := obj.(scheme.Object)
	out.SetResourceVersion(strconv.FormatInt(kv.Revision, 10))
	return out, nil
}

func revive(proto []byte) (scheme.Object, error) {
	pod := &corev1.Pod{}
	return pod, pod.Unmarshal(proto)
}

// run starts the feed; stop ends it and waits.
func (f *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.feed.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			f.t.Errorf("Run ended with %v", err)
		}
	})
	f.t.Cleanup(f.stop)
}

type change func(*corev1.Pod)

func onNode(name string) change { return func(p *corev1.Pod) { p.Spec.NodeName = name } }
func labelled(k, v string) change {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, k, v) }
}

// pod is the stored form of a pod "ns/name".
func (f *fixture) pod(name string, changes ...change) []byte {
	f.t.Helper()
	ns, name := split(name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	for _, c := range changes {
		c(pod)
	}
	data, err := f.scheme.Encode(pod, scheme.Protobuf)
	if err != nil {
		f.t.Fatal(err)
	}
	return data
}

func split(name string) (ns, rest string) {
	for i := range name {
		if name[i] == '/' {
			return name[:i], name[i+1:]
		}
	}
	return "", name
}

func (f *fixture) create(name string, changes ...change) int64 {
	f.t.Helper()
	rev, err := f.store.Create(f.t.Context(), podRoot+name, f.pod(name, changes...))
	return f.wrote(rev, err)
}

func (f *fixture) update(name string, changes ...change) int64 {
	f.t.Helper()
	rev, err := f.store.Update(f.t.Context(), podRoot+name, f.pod(name, changes...), f.stored(name))
	return f.wrote(rev, err)
}

func (f *fixture) delete(name string) int64 {
	f.t.Helper()
	rev, err := f.store.Delete(f.t.Context(), podRoot+name, f.stored(name))
	return f.wrote(rev, err)
}

func (f *fixture) stored(name string) int64 {
	f.t.Helper()
	kv, err := f.store.Get(f.t.Context(), podRoot+name)
	return f.wrote(kv.Revision, err)
}

func (f *fixture) wrote(rev int64, err error) int64 {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	return rev
}

func (f *fixture) latest() *watchcache.Snapshot {
	f.t.Helper()
	s, err := f.pods.Latest(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) watch(opts watchcache.WatchOptions) *watchcache.Watcher {
	f.t.Helper()
	w, err := f.pods.Watch(f.t.Context(), opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.Stop)
	return w
}

// next reads n events and returns each as a line: "ADDED ns/name@5", "BOOKMARK@7".
func (f *fixture) next(w *watchcache.Watcher, n int) []string {
	f.t.Helper()
	var lines []string
	for len(lines) < n {
		events, err := w.Next(f.t.Context())
		if err != nil {
			f.t.Fatalf("after %q: %v", lines, err)
		}
		for _, ev := range events {
			lines = append(lines, line(ev))
		}
	}
	return lines
}

func line(ev watchcache.WatchEvent) string {
	switch {
	case ev.Type == watch.Bookmark && ev.InitialEnd:
		return fmt.Sprintf("INITIAL END@%d", ev.Revision)
	case ev.Type == watch.Bookmark:
		return fmt.Sprintf("BOOKMARK@%d", ev.Revision)
	}
	out := fmt.Sprintf("%s %s@%d", ev.Type, ev.Entry.Key[len(podRoot):], ev.Revision)
	if rv := ev.Entry.Object().GetResourceVersion(); rv != strconv.FormatInt(ev.Revision, 10) {
		out += " but the object says " + rv
	}
	return out
}

// names are the keys of a snapshot with their revisions.
func names(s *watchcache.Snapshot) []string {
	var out []string
	s.Ascend(podRoot, "", func(e *watchcache.Entry) bool {
		out = append(out, fmt.Sprintf("%s@%d", e.Key[len(podRoot):], e.Revision))
		return true
	})
	return out
}
