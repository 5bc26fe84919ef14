package watchcache

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/btree"
)

// Lists that require a value of a label scan all objects. Once the scans for a label have
// visited scansToIndex times as many objects as there are, the cache indexes the label, which
// costs about as much; it drops an index that no list has used for a while.
const (
	mostLabels   = 4    // indexed labels of a cache
	mostWanted   = 16   // labels whose scans are counted
	leastToIndex = 1000 // objects; a scan of fewer is cheap
	scansToIndex = 10
)

// labelIndex holds the entries that have a label, in the order of its values.
type labelIndex struct {
	label string
	used  *atomic.Bool // since the last sweep; clones share it
	tree  *btree.BTreeG[posting]
}

func newLabelIndex(label string) labelIndex {
	i := labelIndex{label, &atomic.Bool{}, newPostings()}
	i.used.Store(true)
	return i
}

func newPostings() *btree.BTreeG[posting] {
	return btree.NewG(degree, func(a, b posting) bool {
		if a.value != b.value {
			return a.value < b.value
		}
		return a.key < b.key
	})
}

// replace replaces an entry by another with the same key; either may be nil.
func (i *labelIndex) replace(old, entry *Entry) {
	var before, after string
	var had, has bool
	if old != nil {
		before, had = old.Labels.Lookup(i.label)
	}
	if entry != nil {
		after, has = entry.Labels.Lookup(i.label)
	}
	if had && (!has || before != after) {
		i.tree.Delete(posting{before, item{key: old.Key}})
	}
	if has {
		i.tree.ReplaceOrInsert(posting{after, item{entry.Key, entry}})
	}
}

// fill adds the entries that have the label; the index is empty.
func (i *labelIndex) fill(c *contents) {
	var all []posting
	c.Ascend("", "", func(e *Entry) bool {
		if value, ok := e.Labels.Lookup(i.label); ok {
			all = append(all, posting{value, item{e.Key, e}})
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b posting) int { return cmp.Compare(a.value, b.value) })
	for _, p := range all {
		i.tree.ReplaceOrInsert(p)
	}
}

// ByLabel is Ascend for the objects whose label has a value: it visits only these. It returns
// false if the label is not indexed.
func (c *contents) ByLabel(label, value, prefix, after string, yield func(*Entry) bool) bool {
	at := slices.IndexFunc(c.byLabel, func(i labelIndex) bool { return i.label == label })
	if at < 0 {
		return false
	}
	i, from := c.byLabel[at], ascendFrom(prefix, after)
	if !i.used.Load() { // an unconditional store would bounce the cache line between readers
		i.used.Store(true)
	}
	i.tree.AscendGreaterOrEqual(posting{value, item{key: from}}, func(p posting) bool {
		return p.value == value && strings.HasPrefix(p.key, prefix) && yield(p.entry)
	})
	return true
}

// scans counts the objects that lists have visited for labels without an index. The lock of
// the cache guards it.
type scans []scan

type scan struct {
	label   string
	visited int
}

// add returns how many objects the scans for a label have visited. Of too many labels the
// count of the one that was scanned least recently is lost.
func (s *scans) add(label string, visited int) int {
	if at := slices.IndexFunc(*s, func(x scan) bool { return x.label == label }); at >= 0 {
		visited += (*s)[at].visited
		*s = slices.Delete(*s, at, at+1)
	} else if len(*s) == mostWanted {
		*s = slices.Delete(*s, 0, 1)
	}
	*s = append(*s, scan{label, visited})
	return visited
}

func (s *scans) forget(label string) {
	*s = slices.DeleteFunc(*s, func(x scan) bool { return x.label == label })
}

// Scanned reports that a list has visited objects of s in order to find those with one value
// of a label. It may index the label in later snapshots.
func (c *Cache) Scanned(s *Snapshot, label string, visited int) {
	if s.Len() < leastToIndex {
		return
	}
	c.mu.Lock()
	known := slices.ContainsFunc(c.live.byLabel, func(i labelIndex) bool { return i.label == label })
	if known || len(c.live.byLabel) == mostLabels || c.wanted.add(label, visited) < scansToIndex*s.Len() {
		c.mu.Unlock()
		return
	}
	c.wanted.forget(label)
	now := c.freezeLocked()
	c.mu.Unlock()

	index := newLabelIndex(label)
	index.fill(now.contents)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.addIndexLocked(index, now.revision)
}

// addIndexLocked adds an index that was filled at a revision, unless its changes since then
// are not known or another list was faster.
func (c *Cache) addIndexLocked(index labelIndex, rev int64) {
	changes, ok := c.history.after(rev)
	known := slices.ContainsFunc(c.live.byLabel, func(i labelIndex) bool { return i.label == index.label })
	if !ok || known || len(c.live.byLabel) == mostLabels {
		return
	}
	for _, ch := range changes {
		index.replace(ch.prev, ch.entry)
	}
	c.live.byLabel = append(c.live.byLabel, index)
	c.frozen.Store(nil)
}

// coolLabelsLocked drops the indexes that were not used since the last sweep.
func (c *Cache) coolLabelsLocked() {
	before := len(c.live.byLabel)
	c.live.byLabel = slices.DeleteFunc(c.live.byLabel, func(i labelIndex) bool { return !i.used.Swap(false) })
	if len(c.live.byLabel) < before {
		c.frozen.Store(nil)
	}
}
