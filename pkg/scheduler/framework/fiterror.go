package framework

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NodeReasons is why one node cannot run the pod.
type NodeReasons struct {
	Node    string
	Plugin  string
	Reasons []string
}

// FitError says why no node can run a pod.
type FitError struct {
	Pod   string // namespace/name
	Nodes []NodeReasons
	Wakes Event // what could make a difference
}

func (e *FitError) sort() {
	slices.SortFunc(e.Nodes, func(a, b NodeReasons) int { return cmp.Compare(a.Node, b.Node) })
}

// Plugins lists who said no, each once, in order.
func (e *FitError) Plugins() []string {
	var out []string
	for _, n := range e.Nodes {
		if !slices.Contains(out, n.Plugin) {
			out = append(out, n.Plugin)
		}
	}
	slices.Sort(out)
	return out
}

// Error is upstream's sentence: how many nodes there are, and of each reason
// how many nodes have it.
func (e *FitError) Error() string {
	counts := map[string]int{}
	for _, n := range e.Nodes {
		for _, r := range n.Reasons {
			counts[r]++
		}
	}
	parts := make([]string, 0, len(counts))
	for reason, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", len(e.Nodes), strings.Join(parts, ", "))
}

// maxMessage keeps what is written into an Event below what Events take (1024
// bytes in events.k8s.io).
const maxMessage = 1000

// Message is Error and, behind it, which node has which reasons, as far as
// there is room.
func (e *FitError) Message() string {
	var b strings.Builder
	b.WriteString(e.Error())
	groups, order := map[string][]string{}, []string{}
	for _, n := range e.Nodes {
		why := strings.Join(n.Reasons, ", ")
		if groups[why] == nil {
			order = append(order, why)
		}
		groups[why] = append(groups[why], n.Node)
	}
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

// shortened names as many nodes as there is room for, or nothing.
func shortened(nodes []string, why string, room int) string {
	for n := len(nodes) - 1; n > 0; n /= 2 {
		line := fmt.Sprintf(" %s and more: %s.", strings.Join(nodes[:n], ", "), why)
		if len(line) <= room {
			return line
		}
	}
	return ""
}
