package watchcache

import (
	"iter"
	"strings"

	"github.com/google/btree"
)

// degree of the B-trees: wide enough to be shallow, narrow enough that copying the
// nodes on a path is cheap.
const degree = 32

// Snapshot is the resource at one revision. It is immutable, takes O(1) to make,
// and is safe for concurrent use.
type Snapshot struct {
	Revision int64

	*contents
}

// Version identifies the contents: it is equal for two snapshots of a cache if
// nothing has changed between them.
func (s *Snapshot) Version() any { return s.contents }

// contents are the entries in key order, and for each indexed field and label also in
// the order of its values. The lock of the cache guards the live contents; the clone
// in a snapshot is immutable.
type contents struct {
	entries *btree.BTreeG[item]
	indexed []string
	byField []*btree.BTreeG[posting] // parallel to indexed
	byLabel []labelIndex
}

type item struct {
	key   string
	entry *Entry
}

type posting struct {
	value string
	item
}

func newContents(indexed []string) *contents {
	c := &contents{
		entries: btree.NewG(degree, func(a, b item) bool { return a.key < b.key }),
		indexed: indexed,
	}
	for range indexed {
		c.byField = append(c.byField, newPostings())
	}
	return c
}

// clone shares all nodes with the original; the next write to either copies
// what it touches. The caller holds the lock that guards writes to c.
func (c *contents) clone() *contents {
	out := &contents{entries: c.entries.Clone(), indexed: c.indexed, byField: make([]*btree.BTreeG[posting], len(c.byField))}
	for i, t := range c.byField {
		out.byField[i] = t.Clone()
	}
	for _, i := range c.byLabel {
		out.byLabel = append(out.byLabel, labelIndex{i.label, i.used, i.tree.Clone()})
	}
	return out
}

// put adds or replaces an entry and returns the previous one, or nil.
func (c *contents) put(e *Entry) *Entry {
	old, _ := c.entries.ReplaceOrInsert(item{e.Key, e})
	for i, field := range c.indexed {
		value := e.Fields.Get(field)
		if old.entry != nil && old.entry.Fields.Get(field) != value {
			c.byField[i].Delete(posting{old.entry.Fields.Get(field), item{key: e.Key}})
		}
		c.byField[i].ReplaceOrInsert(posting{value, item{e.Key, e}})
	}
	for i := range c.byLabel {
		c.byLabel[i].replace(old.entry, e)
	}
	return old.entry
}

// remove removes an entry and returns it, or nil if the key does not exist.
func (c *contents) remove(key string) *Entry {
	old, ok := c.entries.Delete(item{key: key})
	if !ok {
		return nil
	}
	for i, field := range c.indexed {
		c.byField[i].Delete(posting{old.entry.Fields.Get(field), item{key: key}})
	}
	for i := range c.byLabel {
		c.byLabel[i].replace(old.entry, nil)
	}
	return old.entry
}

// Len returns the number of objects.
func (c *contents) Len() int { return c.entries.Len() }

// Get returns the object with a storage key, or nil.
func (c *contents) Get(key string) *Entry {
	it, _ := c.entries.Get(item{key: key})
	return it.entry
}

// Ascend yields the objects whose keys are under prefix and greater than after
// (which may be empty), in key order, until yield returns false.
func (c *contents) Ascend(prefix, after string, yield func(*Entry) bool) {
	c.entries.AscendGreaterOrEqual(item{key: ascendFrom(prefix, after)}, func(it item) bool {
		return strings.HasPrefix(it.key, prefix) && yield(it.entry)
	})
}

// ascendFrom returns the least key under prefix that is greater than after.
func ascendFrom(prefix, after string) string {
	if after >= prefix && after != "" {
		return after + "\x00"
	}
	return prefix
}

// ByField returns the objects whose field has a value. For an indexed field it
// visits only these, in key order; for others it scans all objects.
func (c *contents) ByField(name, value string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for i, field := range c.indexed {
			if field == name {
				c.byField[i].AscendGreaterOrEqual(posting{value: value}, func(p posting) bool {
					return p.value == value && yield(p.entry)
				})
				return
			}
		}
		c.Ascend("", "", func(e *Entry) bool {
			return e.Fields.Get(name) != value || yield(e)
		})
	}
}
