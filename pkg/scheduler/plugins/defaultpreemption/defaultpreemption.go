// Package defaultpreemption frees a node for a pod by evicting pods of lower priority.
package defaultpreemption

import (
	"fmt"
	"iter"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const (
	reasonNever       = "not eligible due to preemptionPolicy=Never."
	reasonTerminating = "not eligible due to a terminating pod on the nominated node."
	reasonNoVictims   = "No preemption victims found for incoming pod"
	reasonNotHelpful  = "Preemption is not helpful for scheduling"
)

// Plugin nominates the node on which preemption does the least harm. It remembers the victims on
// each node for pods of one shape and priority, as long as the filters depend on single nodes.
type Plugin struct {
	of    *snapshot.Snapshot
	cache map[string]*memory
}

// New returns a plugin. It is not safe for concurrent use.
func New() *Plugin { return &Plugin{} }

// Name is upstream's name of the plugin.
func (*Plugin) Name() string { return "DefaultPreemption" }

// PostFilter looks at all nodes. It nominates none if pods that were evicted from the pod's
// nominated node are about to make room there.
func (p *Plugin) PostFilter(c *framework.Cycle) framework.Nomination {
	if why := ineligible(c); why != "" {
		return framework.Nomination{Message: "preemption: " + why}
	}
	var best candidate
	found := -1
	for row, candidate := range p.useful(c) {
		if found < 0 || candidate.better(&best) {
			best, found = candidate, row
		}
	}
	if found < 0 {
		return framework.Nomination{Void: true, Message: "preemption: " + summary(c)}
	}
	return best.nomination(c, found)
}

// Options returns all nodes on which preemption helps.
func (p *Plugin) Options(c *framework.Cycle) ([]framework.Nomination, framework.Nomination) {
	if why := ineligible(c); why != "" {
		return nil, framework.Nomination{Message: "preemption: " + why}
	}
	var out []framework.Nomination
	for row, candidate := range p.useful(c) {
		out = append(out, candidate.nomination(c, row))
	}
	return out, framework.Nomination{Void: true, Message: "preemption: " + summary(c)}
}

// Best returns the nomination that does the least harm.
func (p *Plugin) Best(options []framework.Nomination) framework.Nomination {
	var best candidate
	var out framework.Nomination
	for i, n := range options {
		c := candidate{found: true, victims: slices.Clone(n.Victims), violations: n.Violations, highest: math.MinInt32}
		if c.rank(); i == 0 || c.better(&best) {
			best, out = c, n
		}
	}
	return out
}

// ineligible returns why no pods may be evicted for the pod, "" if they may.
func ineligible(c *framework.Cycle) string {
	if policy := c.Pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return reasonNever
	}
	if waits(c) {
		return reasonTerminating
	}
	return ""
}

// waits reports whether pods of lower priority that were preempted terminate on the pod's
// nominated node, on which it may fit then. Pods that terminate for another reason may take long.
func waits(c *framework.Cycle) bool {
	n, ok := c.Snapshot.Nominated(c.Pod.UID)
	if !ok || !resolvable(c, n.Row()) {
		return false
	}
	for other := range n.Pods() {
		if other.Priority() < c.Pod.Priority() && c.Snapshot.Preempted(other) {
			return true
		}
	}
	return false
}

// resolvable reports whether neither a plugin nor an extender says that preemption cannot help
// on a row.
func resolvable(c *framework.Cycle, row int) bool {
	s := c.Rejected(row)
	return c.Resolvable(row) && (s == nil || s.Code == framework.Unschedulable)
}

// useful iterates over the rows on which preemption helps. Where only an extender rejects the
// pod, nothing is known to help that evicts no pod.
func (p *Plugin) useful(c *framework.Cycle) iter.Seq2[int, candidate] {
	own, nominated := c.Snapshot.Nominated(c.Pod.UID)
	return func(yield func(int, candidate) bool) {
		for row, candidate := range p.candidates(c) {
			if nominated && row == own.Row() {
				candidate = newCandidate(c, row) // its own nomination is not in its way
			}
			if !candidate.found || c.Rejected(row) != nil && (!resolvable(c, row) || len(candidate.victims) == 0) {
				continue
			}
			if !yield(row, candidate) {
				return
			}
		}
	}
}

func (a *candidate) nomination(c *framework.Cycle, row int) framework.Nomination {
	return framework.Nomination{Node: c.Snapshot.At(row).Name(), Victims: a.victims, Violations: a.violations}
}

// summary says why no node can be freed.
func summary(c *framework.Cycle) string {
	return framework.Summary(len(c.Error.Nodes), func(yield func(string, int) bool) {
		for _, n := range c.Error.Nodes {
			reason := reasonNoVictims
			if !resolvable(c, n.Row) {
				reason = reasonNotHelpful
			}
			if !yield(reason, 1) {
				return
			}
		}
	})
}

// memory holds the candidates for pods of one shape and priority, by row.
type memory struct {
	position int64 // in the snapshot's journal, up to which rows are current
	budgets  int64 // version of the PodDisruptionBudgets
	rows     []candidate
}

// maxMemories limits the cache.
const maxMemories = 64

// candidates returns what preemption would do on each row.
func (p *Plugin) candidates(c *framework.Cycle) []candidate {
	if !c.Local() {
		m := &memory{}
		m.update(c)
		return m.rows
	}
	if p.of != c.Snapshot || len(p.cache) > maxMemories {
		p.of, p.cache = c.Snapshot, map[string]*memory{}
	}
	key := fmt.Sprint(c.Pod.Priority(), " ", c.Shape())
	m := p.cache[key]
	if m == nil {
		m = &memory{position: -1}
		p.cache[key] = m
	}
	m.update(c)
	return m.rows
}

func (m *memory) update(c *framework.Cycle) {
	changed, known := c.Snapshot.ChangedSince(m.position)
	for len(m.rows) < c.Snapshot.Rows() {
		m.rows = append(m.rows, candidate{})
	}
	if version := c.Snapshot.BudgetVersion(); version != m.budgets {
		m.budgets, known = version, false
	}
	if known && c.Local() {
		for _, row := range changed {
			m.rows[row] = newCandidate(c, int(row))
		}
	} else {
		for row := range m.rows {
			m.rows[row] = newCandidate(c, row)
		}
	}
	m.position = c.Snapshot.Position()
}
