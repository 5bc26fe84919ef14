package framework

import (
	"context"

	"podium/pkg/scheduler/snapshot"
)

// Plugin is part of the scheduler's profile. It implements one or more of the interfaces
// below, the extension points of upstream's scheduling framework.
//
// The scheduling cycle runs Filter, PostFilter, Score and Reserve for one pod at a time, with
// the scheduler's lock held: these must not block. The binding cycle runs Permit, PreBind and
// PostBind for several pods concurrently; these may call the API.
type Plugin interface {
	// Name returns upstream's name of the plugin, which appears in error messages.
	Name() string
}

// Reader is a plugin whose answers are cached.
type Reader interface {
	Plugin
	// Reads returns everything that the plugin reads of the pod: values, or pointers
	// to them. Pods for which it returns deeply equal values share the plugin's answers,
	// those for which all plugins do have the same shape. It should leave out what the
	// plugin does not read of this pod, so that more pods share them. frameworktest.CheckReads checks it.
	Reads(*snapshot.Pod) []any
}

// FilterPlugin rejects nodes that cannot run a pod; each answer depends on the pod and on one
// node only.
type FilterPlugin interface {
	Reader
	// PreFilter prepares the filter for pods of the shape of this one; nil skips the
	// plugin for them.
	PreFilter(*snapshot.Pod) NodeFilter
	// EventsToRegister returns the events after which a rejected pod may fit.
	EventsToRegister() Event
}

// NodeFilter returns nil if the pod can run on the node. It must depend on the pod and the node
// only: its answer is cached until the node changes. It must be safe for concurrent use.
type NodeFilter func(snapshot.Node) *Status

// RangeFilterPlugin is a FilterPlugin that answers faster for many nodes at once.
type RangeFilterPlugin interface {
	FilterPlugin
	// PreFilterRange returns a filter that rejects the same nodes as PreFilter's; nil if
	// there is none for this pod.
	PreFilterRange(*snapshot.Pod) RangeFilter
}

// RangeFilter calls reject for each node that cannot run the pod, in the rows from from until
// before until. For rows without a node it may call it or not. It must be safe for concurrent use.
type RangeFilter func(snap *snapshot.Snapshot, from, until int, reject func(row int))

// ClusterFilterPlugin rejects nodes by the state of the whole cluster, for example by the
// number of pods per topology domain. It runs after all FilterPlugins.
type ClusterFilterPlugin interface {
	Reader
	// PreFilter is as in FilterPlugin.
	PreFilter(*snapshot.Pod) ClusterFilter
	// EventsToRegister is as in FilterPlugin.
	EventsToRegister() Event
}

// ClusterFilter holds what a plugin derives from all nodes for pods of one shape.
type ClusterFilter interface {
	// Update updates the state after a node was added, changed (including its pods) or
	// removed, in which case n.Exists() is false. It is called for each node first, and
	// for the changed nodes before each cycle.
	Update(n snapshot.Node)
	// Filter returns nil if the pod can run on the node. It is called in each cycle for
	// each node that no FilterPlugin rejects: it must be fast.
	Filter(n snapshot.Node) *Status
}

// ScorePlugin ranks the nodes that no filter rejects; each score depends on the pod and on one
// node only.
type ScorePlugin interface {
	Reader
	// PreScore prepares the scores for pods of the shape of this one; nil skips the
	// plugin for them. The scores are cached like a NodeFilter's answers.
	PreScore(*snapshot.Pod) NodeScore
	// Normalize returns how the scores are converted to 0 to MaxNodeScore.
	Normalize() Normalize
}

// NodeScore returns the score of a node. It must be safe for concurrent use.
type NodeScore func(snapshot.Node) int64

// RangeScorePlugin is a ScorePlugin that answers faster for many nodes at once.
type RangeScorePlugin interface {
	ScorePlugin
	// PreScoreRange returns scores equal to PreScore's; nil if there are none for this pod.
	PreScoreRange(*snapshot.Pod) RangeScore
}

// RangeScore adds the scores of nodes, times weight, to sums: sums[i] is of row from+i, which may
// have no node. It must be safe for concurrent use.
type RangeScore func(snap *snapshot.Snapshot, from int, weight int64, sums []int64)

// ClusterScorePlugin ranks nodes by the state of the whole cluster.
type ClusterScorePlugin interface {
	Reader
	// PreScore is as in ScorePlugin.
	PreScore(*snapshot.Pod) ClusterScore
}

// ClusterScore holds what a plugin derives from all nodes for pods of one shape.
type ClusterScore interface {
	// Update is as in ClusterFilter.
	Update(n snapshot.Node)
	// Score sets scores[i] to the score of the node in rows[i], from 0 to MaxNodeScore.
	// It is called in each cycle with the rows of the nodes that no filter rejects, and
	// with scores of 0. If there is a method Empty() bool and it returns true, all scores
	// are 0 and Score is not called.
	Score(rows []int32, scores []int64)
}

// Normalize is how the scores of a ScorePlugin are converted to 0 to MaxNodeScore.
type Normalize int

// Ways to normalize.
const (
	AsIs         Normalize = iota // unchanged
	Highest                       // the highest among the nodes becomes MaxNodeScore
	Lowest                        // as Highest, but reversed: the highest becomes 0
	MaxNodeScore = int64(100)
)

// PostFilterPlugin runs when no node fits, for example to preempt pods.
type PostFilterPlugin interface {
	Plugin
	// PostFilter decides what to do; it changes nothing. Plugins after the first one that
	// nominates a node do not run.
	PostFilter(*Cycle) Nomination
}

// Nomination is the decision of a PostFilterPlugin.
type Nomination struct {
	Node    string          // on which the pod will fit once the victims are gone; "" if there is none
	Victims []*snapshot.Pod // to evict, unless they terminate already
	Void    bool            // an earlier nomination of the pod no longer holds
	Message string          // why no node is nominated

	Violations int // of PodDisruptionBudgets by the evictions

	// Release frees what keeps the pod from other nodes; nil: nothing. The daemon calls it
	// in the background, without the scheduler's lock.
	Release func(context.Context)
}

// ReservePlugin keeps its own state about pods that are being bound.
type ReservePlugin interface {
	Plugin
	// Reserve reserves what the pod needs on the node. An error ends the attempt; the
	// pod is retried after its back-off.
	Reserve(pod *snapshot.Pod, node string) error
	// Unreserve undoes Reserve if the pod is not bound, also if Reserve itself failed.
	// It must be idempotent.
	Unreserve(pod *snapshot.Pod, node string)
}

// PermitPlugin approves bindings.
type PermitPlugin interface {
	Plugin
	// Waits reports whether Permit may block for the pod.
	Waits(pod *snapshot.Pod) bool
	// Permit returns nil to approve the binding. It may block to delay the binding, at
	// most until ctx ends. An error rejects it and ends the attempt.
	Permit(ctx context.Context, pod *snapshot.Pod, node string) error
}

// PreBindPlugin prepares the node or the API for the pod.
type PreBindPlugin interface {
	Plugin
	// PreBind runs before the pod is bound. An error ends the attempt, but for a LaterError.
	PreBind(ctx context.Context, pod *snapshot.Pod, node string) error
}

// LaterError is an error of PreBind of a pod that has to wait. When Await, which may block for
// long, returns nil, all PreBind plugins run again; its error ends the attempt.
type LaterError struct {
	Await func(ctx context.Context) error
}

func (*LaterError) Error() string { return "the pod has to wait before it is bound" }

// PostBindPlugin is notified of bound pods.
type PostBindPlugin interface {
	Plugin
	PostBind(ctx context.Context, pod *snapshot.Pod, node string)
}

// Weighted is a plugin of a profile.
type Weighted struct {
	Plugin
	Weight int64 // of its scores; 0 for plugins without scores
}

// Code is the kind of a rejection.
type Code int

// Codes, with the same meaning as upstream.
const (
	// Unschedulable means that the pod might fit if other pods were removed.
	Unschedulable Code = iota
	// UnschedulableAndUnresolvable means that preemption cannot help.
	UnschedulableAndUnresolvable
)

// Status is a plugin's rejection of a node; nil is success.
type Status struct {
	Code    Code
	Reasons []string // upstream's texts
}

// NewStatus returns a rejection.
func NewStatus(code Code, reasons ...string) *Status { return &Status{code, reasons} }
