// Package topology counts pods by topology domain: the value of a node label, such as the zone
// or the host name.
package topology

import "podium/pkg/scheduler/snapshot"

// Counts are the numbers of matching pods by domain, which Update updates one node at a time. It
// is not safe for concurrent use.
type Counts struct {
	key   string
	match func(*snapshot.Pod) bool

	ids     map[string]int32 // by label value
	domains []domain         // by id
	free    []int32          // unused ids
	rows    []row            // by row of the snapshot

	total        int  // pods on counted nodes
	stale        bool // minimum and number are to be computed
	least, count int
}

type domain struct {
	labeled int // nodes with the label
	counted int // of those, nodes whose pods count
	pods    int // on counted nodes
}

type row struct {
	value   string
	domain  int32
	labeled bool
	counted bool
	pods    int
}

// New returns counts without nodes. key is the node label; match selects the pods.
func New(key string, match func(*snapshot.Pod) bool) *Counts {
	return &Counts{key: key, match: match, ids: map[string]int32{}}
}

// Update recounts a node after it was added, changed or removed. The node's pods and its domain
// count only if counted is true.
func (c *Counts) Update(n snapshot.Node, counted bool) {
	for len(c.rows) <= n.Row() {
		c.rows = append(c.rows, row{})
	}
	r, now := &c.rows[n.Row()], c.read(n, counted)
	if r.labeled == now.labeled && r.counted == now.counted && r.value == now.value {
		c.recount(r, now.pods)
		return
	}
	c.stale = true
	c.leave(r)
	if *r = now; r.labeled {
		c.enter(r)
	}
}

// read returns a row as it is now, without its domain.
func (c *Counts) read(n snapshot.Node, counted bool) row {
	var r row
	if !n.Exists() {
		return r
	}
	for p := range n.Pods() {
		if c.match(p) {
			r.pods++
		}
	}
	if r.value, r.labeled = n.Labels()[c.key]; r.labeled {
		r.counted = counted
	}
	return r
}

// recount sets the number of pods of a row whose domain has not changed.
func (c *Counts) recount(r *row, pods int) {
	more := pods - r.pods
	r.pods = pods
	if more != 0 && r.counted {
		c.domains[r.domain].pods += more
		c.total += more
		c.stale = true
	}
}

func (c *Counts) enter(r *row) {
	id, ok := c.ids[r.value]
	if !ok {
		if last := len(c.free) - 1; last >= 0 {
			id, c.free = c.free[last], c.free[:last]
		} else {
			id = int32(len(c.domains))
			c.domains = append(c.domains, domain{})
		}
		c.ids[r.value] = id
	}
	r.domain = id
	d := &c.domains[id]
	d.labeled++
	if r.counted {
		d.counted++
		d.pods += r.pods
		c.total += r.pods
	}
}

func (c *Counts) leave(r *row) {
	if !r.labeled {
		return
	}
	d := &c.domains[r.domain]
	if r.counted {
		d.counted--
		d.pods -= r.pods
		c.total -= r.pods
	}
	if d.labeled--; d.labeled == 0 {
		delete(c.ids, r.value)
		c.free = append(c.free, r.domain)
	}
}

// Domain returns the id of the domain of the node in a row; ok is false if the node does not have
// the label.
func (c *Counts) Domain(row int) (id int, ok bool) {
	return int(c.rows[row].domain), c.rows[row].labeled
}

// Domains returns the number of domain ids: ids are less than it.
func (c *Counts) Domains() int { return len(c.domains) }

// Pods returns the number of matching pods on the counted nodes of a domain.
func (c *Counts) Pods(id int) int { return c.domains[id].pods }

// Total returns the number of matching pods on counted nodes that have the label.
func (c *Counts) Total() int { return c.total }

// OnNode returns the number of matching pods on the node in a row, counted or not.
func (c *Counts) OnNode(row int) int { return c.rows[row].pods }

// Least returns the number of domains with counted nodes, and the minimum number of pods among
// them; 0 if there are none.
func (c *Counts) Least() (domains, pods int) {
	if c.stale {
		c.count, c.least, c.stale = 0, 0, false
		for _, d := range c.domains {
			if d.counted == 0 {
				continue
			}
			if c.count == 0 || d.pods < c.least {
				c.least = d.pods
			}
			c.count++
		}
	}
	return c.count, c.least
}
