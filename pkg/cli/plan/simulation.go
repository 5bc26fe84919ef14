package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/plugins/dynamicresources"
	"podium/pkg/scheduler/snapshot"
)

// Cluster is what the scheduler reads of a cluster.
type Cluster struct {
	Nodes        []*corev1.Node
	Pods         []*corev1.Pod
	Budgets      []*policyv1.PodDisruptionBudget
	Namespaces   []*corev1.Namespace
	Services     []*corev1.Service
	ReplicaSets  []*appsv1.ReplicaSet
	StatefulSets []*appsv1.StatefulSet
	Controllers  []*corev1.ReplicationController
	Claims       []*corev1.PersistentVolumeClaim
	Volumes      []*corev1.PersistentVolume
	Classes      []*storagev1.StorageClass
	Drivers      []*storagev1.CSIDriver
	Capacities   []*storagev1.CSIStorageCapacity
	CSINodes     []*storagev1.CSINode
	Attachments  []*storagev1.VolumeAttachment

	DeviceClaims   []*resourcev1.ResourceClaim
	ClaimTemplates []*resourcev1.ResourceClaimTemplate
	DeviceClasses  []*resourcev1.DeviceClass
	Slices         []*resourcev1.ResourceSlice
	TaintRules     []*resourcev1.DeviceTaintRule
}

// Placement is what would become of a pod.
type Placement struct {
	Pod      string             `json:"pod"` // namespace/name
	Node     string             `json:"node,omitempty"`
	Tied     []string           `json:"tied,omitempty"`     // other nodes with the same score: the scheduler chooses one at random
	Ranked   []framework.Ranked `json:"ranked,omitempty"`   // the best nodes, with their scores
	Of       int                `json:"of"`                 // number of nodes
	Fit      int                `json:"fit"`                // number of nodes that fit
	Reason   string             `json:"reason,omitempty"`   // why it stays pending
	Preempts []string           `json:"preempts,omitempty"` // pods that it would have evicted

	uid types.UID
}

// bestNodes is the number of nodes that Placement.Ranked lists.
const bestNodes = 3

// Simulation schedules pods on a copy of a cluster's state. It is not safe for
// concurrent use.
type Simulation struct {
	snap      *snapshot.Snapshot
	nodes     map[string]*corev1.Node
	volumes   plugins.Volumes
	claims    *claims
	algorithm *framework.Scheduler
	waiting   []*corev1.Pod // of the cluster
}

// New returns a simulation that starts with the state of c, whose objects it
// does not modify. Ties are broken in favour of the first node by name.
func New(c *Cluster) *Simulation {
	s := &Simulation{snap: snapshot.New(), nodes: map[string]*corev1.Node{}}
	node := func(name string) *corev1.Node { return s.nodes[name] }
	s.volumes, s.claims = plugins.NewVolumes(noWrites{}, node), newClaims(node)
	s.algorithm = framework.New(slices.Concat(plugins.Default(s.claims.devices.Backs), s.volumes.List(), []framework.Weighted{{Plugin: s.claims.devices, Weight: dynamicresources.Weight}}), nil)
	for _, n := range c.Nodes {
		s.SetNode(n)
	}
	s.learn(c)
	for _, p := range c.Pods {
		s.add(p)
	}
	return s
}

// learn adds what plugins read besides nodes and pods.
func (s *Simulation) learn(c *Cluster) {
	for _, b := range c.Budgets {
		s.snap.SetBudget(b)
	}
	for _, n := range c.Namespaces {
		s.snap.SetNamespace(n.Name, n.Labels)
	}
	for _, o := range c.Services {
		s.snap.SetService(o.Namespace, o.Name, o.Spec.Selector)
	}
	for _, o := range c.ReplicaSets {
		s.snap.SetOwner(o.UID, o.Spec.Selector)
	}
	for _, o := range c.StatefulSets {
		s.snap.SetOwner(o.UID, o.Spec.Selector)
	}
	for _, o := range c.Controllers {
		s.snap.SetOwner(o.UID, &metav1.LabelSelector{MatchLabels: o.Spec.Selector})
	}
	report(c.Claims, s.volumes.OnClaim)
	report(c.Volumes, s.volumes.OnVolume)
	report(c.Classes, s.volumes.OnClass)
	report(c.Drivers, s.volumes.OnDriver)
	report(c.Capacities, s.volumes.OnCapacity)
	report(c.CSINodes, s.volumes.OnCSINode)
	report(c.Attachments, func(old, new *storagev1.VolumeAttachment) { s.volumes.OnAttachment(old, new) })
	s.claims.learn(c)
}

// report calls a handler for objects that are new to it.
func report[T any](list []T, on func(old, new T)) {
	var none T
	for _, o := range list {
		on(none, o)
	}
}

// noWrites is the writer of a volume plugin that never binds.
type noWrites struct{}

func (noWrites) Reserve(context.Context, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim) error {
	return nil
}
func (noWrites) SelectNode(context.Context, *corev1.PersistentVolumeClaim, string) error { return nil }

// SetNode adds or replaces a node.
func (s *Simulation) SetNode(n *corev1.Node) {
	s.nodes[n.Name] = n
	s.snap.SetNode(n)
}

// add counts a pod of the cluster: on its node, or among those that wait.
func (s *Simulation) add(p *corev1.Pod) {
	switch {
	case Ended(p):
	case p.Spec.NodeName != "":
		s.snap.Assign(p)
	case p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) == 0 && p.Spec.SchedulerName == corev1.DefaultSchedulerName:
		s.waiting = append(s.waiting, p)
		if node := p.Status.NominatedNodeName; node != "" {
			s.snap.Nominate(snapshot.NewPod(p), node)
		}
	}
}

// Ended reports whether a pod no longer uses a node.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Remove removes a pod from its node, and frees its devices.
func (s *Simulation) Remove(p *corev1.Pod) {
	s.snap.Remove(p.UID)
	s.claims.ended(p)
}

// attempt is a pod on its way through the simulation.
type attempt struct {
	pod     *snapshot.Pod
	ours    bool // one of the pods that Place was called with
	result  Placement
	victims []*snapshot.Pod
	freed   bool // a claim of the pod was freed: it may fit another node
}

// Place schedules new pods, which are identified by their UIDs, together with
// those that already wait, and returns what becomes of the new ones, in their
// order. They stay in the simulation.
func (s *Simulation) Place(pods ...*corev1.Pod) []Placement {
	var queue []*attempt
	for _, p := range s.waiting {
		queue = append(queue, &attempt{pod: snapshot.NewPod(s.claims.made(p))})
	}
	for _, p := range pods {
		queue = append(queue, &attempt{pod: snapshot.NewPod(s.claims.made(p)), ours: true})
	}
	slices.SortStableFunc(queue, func(a, b *attempt) int { return cmp.Compare(b.pod.Priority(), a.pod.Priority()) })
	s.waiting = nil
	rest, moved := s.round(queue)
	for moved { // a pod with a node may be what another one waits for
		rest, moved = s.round(rest)
	}
	for _, a := range rest {
		s.waiting = append(s.waiting, a.pod.Pod)
	}
	return results(queue, pods)
}

func results(queue []*attempt, pods []*corev1.Pod) []Placement {
	byUID := map[types.UID]Placement{}
	for _, a := range queue {
		if a.ours {
			byUID[a.pod.UID] = a.result
		}
	}
	out := make([]Placement, 0, len(pods))
	for _, p := range pods {
		out = append(out, byUID[p.UID])
	}
	return out
}

// round tries each pod once, and lets the pods go that were preempted. It returns
// the pods that got no node, and whether another round may help.
func (s *Simulation) round(queue []*attempt) (rest []*attempt, moved bool) {
	for _, a := range queue {
		if s.try(a) {
			moved = true
		} else {
			rest = append(rest, a)
		}
	}
	for _, a := range rest {
		for _, v := range a.victims {
			s.Remove(v.Pod)
			moved = true
		}
		moved = moved || a.freed
		a.victims, a.freed = nil, false
	}
	return rest, moved
}

// try runs a scheduling cycle. It reports whether the pod got a node.
func (s *Simulation) try(a *attempt) bool {
	r := &a.result
	r.Pod, r.uid, r.Of = a.pod.Namespace+"/"+a.pod.Name, a.pod.UID, s.snap.Nodes()
	place, err := s.algorithm.Schedule(s.snap, a.pod)
	if err == nil {
		err = s.assume(a, place)
	}
	if err == nil {
		return true
	}
	r.Reason = err.Error()
	var fit *framework.FitError
	if !errors.As(err, &fit) {
		return false
	}
	n := s.algorithm.PostFilter(s.snap, a.pod, fit)
	r.Reason = fit.Message()
	if n.Release != nil {
		n.Release(context.Background())
		a.freed = true
	}
	if n.Node == "" {
		if n.Void {
			s.snap.Unnominate(a.pod.UID)
		}
		return false
	}
	s.nominate(a.pod, n.Node)
	a.victims = n.Victims
	for _, v := range n.Victims {
		if v.DeletionTimestamp != nil {
			continue
		}
		r.Preempts = append(r.Preempts, v.Namespace+"/"+v.Name)
		s.snap.Evict(v.UID)
	}
	return false
}

// nominate reserves a node for a pod. Pods of lower priority lose their
// nominations for it.
func (s *Simulation) nominate(pod *snapshot.Pod, name string) {
	s.snap.Nominate(pod, name)
	node, _ := s.snap.Nominated(pod.UID)
	for _, other := range slices.Clone(node.Nominees()) {
		if other.Priority() < pod.Priority() {
			s.snap.Unnominate(other.UID)
		}
	}
}

// assume counts the pod on its node, and reserves its volumes.
func (s *Simulation) assume(a *attempt, place framework.Placement) error {
	r := &a.result
	ranked := s.algorithm.Rank(s.snap, a.pod)
	r.Fit, r.Ranked, r.Tied = len(ranked), ranked[:min(len(ranked), bestNodes)], nil
	for _, n := range ranked {
		if n.Node != place.Node && place.Asked > 1 && n.Total == place.Score {
			r.Tied = append(r.Tied, n.Node)
		}
	}
	s.snap.Unnominate(a.pod.UID)
	var undo framework.Undo
	undo.Push(s.snap.Assume(a.pod, place.Node))
	if err := s.algorithm.Reserve(a.pod, place.Node, &undo); err != nil {
		undo.Run()
		return err
	}
	r.Node, r.Reason = place.Node, ""
	return nil
}

// Why returns in a line why the pod lands where it does.
func (p Placement) Why() string {
	switch {
	case p.Node == "":
		return p.Reason
	case p.Fit == 1:
		return fmt.Sprintf("the only one of %d nodes that fits", p.Of)
	}
	best := p.Ranked[0]
	for _, r := range p.Ranked {
		if r.Node == p.Node {
			best = r
		}
	}
	out := fmt.Sprintf("%d of %d nodes fit; score %d (%s)", p.Fit, p.Of, best.Total, scores(best.Scores))
	if len(p.Tied) > 0 {
		return out + fmt.Sprintf(", the same as %s: one is chosen at random", strings.Join(p.Tied, ", "))
	}
	for _, r := range p.Ranked {
		if r.Node != p.Node {
			return out + fmt.Sprintf(", next is %s with %d", r.Node, r.Total)
		}
	}
	return out
}

func scores(by map[string]int64) string {
	var names []string
	for name, score := range by {
		if score != 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, by[name])
	}
	return strings.Join(names, ", ")
}
