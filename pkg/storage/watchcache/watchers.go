package watchcache

import (
	"strings"
	"time"
)

// watchers finds the watchers that may match a change without visiting all of them.
// Each watcher is in the narrowest bucket that its options allow. A change visits
// only the buckets of its key, of its namespace and of its indexed fields (before
// and after), and that of the watchers of the whole resource. The lock of the cache
// guards it.
type watchers struct {
	indexed []string
	buckets map[bucket][]*Watcher
	count   int
	cut     int64 // watches ended by the cache
}

// bucket names a group of watchers. by is a field, or one of the constants below.
type bucket struct{ by, value string }

const (
	byNothing = ""
	byKey     = "/key"
	byFolder  = "/folder"
)

func newWatchers(indexed []string) watchers {
	return watchers{indexed: indexed, buckets: map[bucket][]*Watcher{}}
}

// bucketOf returns the narrowest bucket for a watcher of the resource with this key
// prefix.
func (ws *watchers) bucketOf(opts WatchOptions, resource string) bucket {
	exact := func(field string) (string, bool) {
		if opts.Fields == nil {
			return "", false
		}
		return opts.Fields.RequiresExactMatch(field)
	}
	folder := opts.Prefix
	if ns, ok := exact("metadata.namespace"); ok && folder == resource && ns != "" {
		folder += ns + "/"
	}
	if !strings.HasSuffix(folder, "/") {
		return bucket{byKey, folder}
	}
	if name, ok := exact("metadata.name"); ok && folder != resource {
		return bucket{byKey, folder + name}
	}
	for _, field := range ws.indexed {
		if value, ok := exact(field); ok {
			return bucket{field, value}
		}
	}
	if folder != resource {
		return bucket{byFolder, folder}
	}
	return bucket{by: byNothing}
}

func (ws *watchers) add(w *Watcher) {
	b := ws.buckets[w.bucket]
	w.slot = len(b)
	ws.buckets[w.bucket] = append(b, w)
	ws.count++
}

// remove does nothing if the watcher has been removed already.
func (ws *watchers) remove(w *Watcher) {
	b := ws.buckets[w.bucket]
	if w.slot >= len(b) || b[w.slot] != w {
		return
	}
	ws.count--
	last := len(b) - 1
	b[w.slot] = b[last]
	b[w.slot].slot = w.slot
	b[last] = nil
	if last == 0 {
		delete(ws.buckets, w.bucket)
		return
	}
	ws.buckets[w.bucket] = b[:last]
}

// dispatch queues a change for every matching watcher, and removes watchers that
// are too slow. It never blocks.
func (ws *watchers) dispatch(ch *change) {
	if len(ws.buckets) == 0 {
		return
	}
	key, fields, before := "", Set{}, Set{}
	if ch.prev != nil {
		key, before = ch.prev.Key, ch.prev.Fields
	}
	if ch.entry != nil {
		key, fields = ch.entry.Key, ch.entry.Fields
	}
	ws.offer(bucket{by: byNothing}, ch)
	ws.offer(bucket{byKey, key}, ch)
	ws.offer(bucket{byFolder, key[:strings.LastIndexByte(key, '/')+1]}, ch)
	for _, field := range ws.indexed {
		if ch.entry != nil {
			ws.offer(bucket{field, fields.Get(field)}, ch)
		}
		if ch.prev != nil && (ch.entry == nil || before.Get(field) != fields.Get(field)) {
			ws.offer(bucket{field, before.Get(field)}, ch)
		}
	}
}

func (ws *watchers) offer(b bucket, ch *change) {
	group := ws.buckets[b]
	for i := len(group) - 1; i >= 0; i-- { // backwards: remove fills the gap from the end
		if w := group[i]; !w.offer(ch) {
			ws.cut++
			ws.remove(w)
		}
	}
}

// cutAll ends every watch with err.
func (ws *watchers) cutAll(err error) {
	for b, group := range ws.buckets {
		for _, w := range group {
			w.cut(err)
		}
		delete(ws.buckets, b)
	}
	ws.cut += int64(ws.count)
	ws.count = 0
}

// cutStalled ends watches whose reader has not fetched queued events in time.
func (ws *watchers) cutStalled(now time.Time) {
	for _, group := range ws.buckets {
		for i := len(group) - 1; i >= 0; i-- {
			if w := group[i]; w.stalled(now) {
				w.cut(ErrSlow)
				ws.cut++
				ws.remove(w)
			}
		}
	}
}
