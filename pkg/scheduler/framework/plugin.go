package framework

import (
	"strings"

	"podium/pkg/scheduler/snapshot"
)

// Filter is a plugin that rules nodes out. For a pod it gives the question to
// ask of each node, nil when it has nothing to say about this pod. The question
// answers why not, in upstream's words, and nothing if the node will do; it may
// only look at the pod's needs and the node, for the answer is kept until the
// node changes, and used for every pod of the same shape.
type Filter interface {
	Name() string
	Filter(*snapshot.Pod) func(snapshot.Node) []string
	// Wakes says what could change an answer from no to yes.
	Wakes() Event
}

// Scorer is a plugin that prefers some nodes. As with filters, nil is no
// preference, and answers are kept.
type Scorer interface {
	Name() string
	Score(*snapshot.Pod) func(snapshot.Node) int64
	Normalize() Normalize
}

// Normalize says how a scorer's answers become scores from 0 to MaxScore.
type Normalize int

// The ways to normalize.
const (
	AsIs     Normalize = iota // they are such scores
	Most                      // the greatest among the nodes in question is MaxScore
	Fewest                    // as Most, but the greatest is 0
	MaxScore = int64(100)
)

// Weighted is a scorer and how much it counts.
type Weighted struct {
	Scorer
	Weight int64
}

// Event is something that happened to the cluster, or a set of such things.
type Event uint32

// What can happen that may let a pod fit where it did not.
const (
	NodeAdded Event = 1 << iota
	NodeAllocatable
	NodeLabels
	NodeTaints
	NodeSchedulable
	PodGone // from a node

	AnyEvent = NodeAdded | NodeAllocatable | NodeLabels | NodeTaints | NodeSchedulable | PodGone
)

func (e Event) String() string {
	names := map[Event]string{
		NodeAdded: "NodeAdd", NodeAllocatable: "NodeAllocatableChange", NodeLabels: "NodeLabelChange",
		NodeTaints: "NodeTaintChange", NodeSchedulable: "NodeSpecUnschedulableChange", PodGone: "AssignedPodDelete",
	}
	var parts []string
	for bit := NodeAdded; bit <= PodGone; bit <<= 1 {
		if e&bit != 0 {
			parts = append(parts, names[bit])
		}
	}
	return strings.Join(parts, "|")
}
