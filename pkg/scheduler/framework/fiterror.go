package framework

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"podium/pkg/scheduler/snapshot"
)

// FitError is the error for a pod that fits on no node.
type FitError struct {
	Pod   string // namespace/name
	Nodes []NodeReasons
	Wakes Event  // events that may let the pod fit
	After string // what the PostFilter plugins say; may be ""

	outside map[int]*Status // of rows that only extenders reject
}

// NodeReasons is the reason why one node cannot run the pod.
type NodeReasons struct {
	Node   string
	Row    int    // of the snapshot
	Plugin Plugin // the first one that rejects the node
	*Status
}

// fitError returns a *FitError with the reasons of all nodes: those of plugins, and of extenders
// for the nodes that no plugin rejects. It returns ErrChanged if nothing rejects a node.
func (v *answers) fitError(snap *snapshot.Snapshot, pod *snapshot.Pod, rejected Rejections) error {
	e := &FitError{Pod: pod.Namespace + "/" + pod.Name, Wakes: NodeAdded, Nodes: make([]NodeReasons, 0, snap.Nodes())}
	for row, refused := range v.refused {
		if refused == absent {
			continue
		}
		plugin, status := v.why(snap, pod, row)
		if status == nil {
			if plugin, status = e.reject(row, rejected[snap.At(row).Name()]); status == nil {
				return ErrChanged
			}
		}
		e.Nodes = append(e.Nodes, NodeReasons{snap.At(row).Name(), row, plugin, status})
	}
	for i, n := range e.Nodes {
		if i == 0 || n.Plugin.Name() != e.Nodes[i-1].Plugin.Name() {
			e.Wakes |= n.Plugin.(interface{ EventsToRegister() Event }).EventsToRegister()
		}
	}
	return e
}

// reject records the status with which an extender rejects a row.
func (e *FitError) reject(row int, status *Status) (Plugin, *Status) {
	if e.outside == nil {
		e.outside = map[int]*Status{}
	}
	e.outside[row] = status
	return byExtender{}, status
}

// Error returns upstream's message: the number of nodes, and for each reason the number of
// nodes that it applies to.
func (e *FitError) Error() string {
	message := Summary(len(e.Nodes), func(yield func(string, int) bool) {
		for status, nodes := range e.byStatus() {
			for _, reason := range status.Reasons {
				if !yield(reason, len(nodes)) {
					return
				}
			}
		}
	})
	if e.After != "" {
		message += " " + e.After
	}
	return message
}

// Summary returns upstream's message about reasons and the number of nodes that each applies
// to. A reason may be repeated.
func Summary(nodes int, reasons iter.Seq2[string, int]) string {
	counts := map[string]int{}
	for reason, n := range reasons {
		counts[reason] += n
	}
	parts := make([]string, 0, len(counts))
	for reason, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(parts, ", "))
}

// byStatus groups the nodes. Most plugins use one Status for many nodes.
func (e *FitError) byStatus() map[*Status][]string {
	out := map[*Status][]string{}
	var run []string
	for i, n := range e.Nodes {
		run = append(run, n.Node)
		if i+1 == len(e.Nodes) || e.Nodes[i+1].Status != n.Status {
			out[n.Status] = append(out[n.Status], run...)
			run = run[:0]
		}
	}
	return out
}

// maxMessage keeps the note of an Event below the limit of events.k8s.io, 1024 bytes.
const maxMessage = 1000

// Message returns Error followed by the reasons of each node, as far as they fit into
// maxMessage bytes. Nodes are sorted by name, reasons by their first node.
func (e *FitError) Message() string {
	var b strings.Builder
	b.WriteString(e.Error())
	groups := map[string][]string{}
	for status, nodes := range e.byStatus() {
		why := strings.Join(status.Reasons, ", ")
		groups[why] = append(groups[why], nodes...)
	}
	order := make([]string, 0, len(groups))
	for why, nodes := range groups {
		slices.Sort(nodes)
		order = append(order, why)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Compare(groups[a][0], groups[b][0]) })
	for i, why := range order {
		nodes := groups[why]
		line := fmt.Sprintf(" %s: %s%s", strings.Join(nodes, ", "), why, ending(i == len(order)-1))
		if b.Len()+len(line) > maxMessage {
			b.WriteString(shortened(nodes, why, maxMessage-b.Len()))
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func ending(last bool) string {
	if last {
		return "."
	}
	return ";"
}

// shortened lists as many nodes as fit into room bytes; "" if none fits.
func shortened(nodes []string, why string, room int) string {
	for n := len(nodes) - 1; n > 0; n /= 2 {
		line := fmt.Sprintf(" %s and more: %s.", strings.Join(nodes[:n], ", "), why)
		if len(line) <= room {
			return line
		}
	}
	return ""
}
