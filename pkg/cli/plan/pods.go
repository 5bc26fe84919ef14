package plan

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// Workload is an object whose pods a plan places.
type Workload struct {
	Name, Namespace string
	Kind            string
	Pod             *corev1.Pod // as the API server would create one; without a name
	New             int         // number of pods to create
	Old             []*corev1.Pod
	Surge           int  // how many more pods than wanted may exist during a rollout
	PerNode         bool // a pod on each node that takes it
	Claims          bool // each pod also has claims of its own, which the plan leaves out
}

// desired is what the specs of workloads have in common.
type desired struct {
	template *corev1.PodTemplateSpec
	replicas int
	surge    int
	perNode  bool
}

// Of returns the pods that the change of an object from old to new would create;
// nil if the kind has none. Each is one of *corev1.Pod, Deployment, ReplicaSet,
// StatefulSet, DaemonSet and Job; old may be nil. owned are the pods that the
// old object controls, also through ReplicaSets.
func Of(old, new any, owned []*corev1.Pod) *Workload {
	if p, ok := new.(*corev1.Pod); ok {
		w := &Workload{Name: p.Name, Namespace: p.Namespace, Kind: "Pod", Pod: p, New: 1}
		if existing, ok := old.(*corev1.Pod); ok && existing != nil {
			w.New = 0
		}
		return w
	}
	want := desiredOf(new)
	if want == nil {
		return nil
	}
	m := new.(metav1.Object)
	w := &Workload{Name: m.GetName(), Namespace: m.GetNamespace(), Kind: kindOf(new), PerNode: want.perNode, Surge: want.surge}
	w.Pod = &corev1.Pod{ObjectMeta: *want.template.ObjectMeta.DeepCopy(), Spec: *want.template.Spec.DeepCopy()}
	w.Pod.Namespace = w.Namespace
	if set, ok := new.(*appsv1.StatefulSet); ok {
		w.Claims = len(set.Spec.VolumeClaimTemplates) > 0
	}
	had := desiredOf(old)
	switch {
	case had == nil:
		w.New = want.replicas
	case same(had.template, want.template):
		w.New = max(0, want.replicas-had.replicas)
		w.PerNode = false
	case kindOf(new) == "ReplicaSet" || kindOf(new) == "Job":
		w.New = max(0, want.replicas-len(owned)) // pods that exist keep their template
	default:
		w.New, w.Old = want.replicas, owned
	}
	return w
}

func kindOf(obj any) string {
	switch obj.(type) {
	case *appsv1.Deployment:
		return "Deployment"
	case *appsv1.ReplicaSet:
		return "ReplicaSet"
	case *appsv1.StatefulSet:
		return "StatefulSet"
	case *appsv1.DaemonSet:
		return "DaemonSet"
	}
	return "Job"
}

func desiredOf(obj any) *desired {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		d := &desired{template: &o.Spec.Template, replicas: number(o.Spec.Replicas)}
		if o.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			d.surge = surge(o.Spec.Strategy.RollingUpdate, d.replicas)
		}
		if o.Spec.Paused {
			d.replicas = 0
		}
		return d
	case *appsv1.ReplicaSet:
		return &desired{template: &o.Spec.Template, replicas: number(o.Spec.Replicas)}
	case *appsv1.StatefulSet:
		return &desired{template: &o.Spec.Template, replicas: number(o.Spec.Replicas)}
	case *appsv1.DaemonSet:
		return &desired{template: &o.Spec.Template, perNode: true}
	case *batchv1.Job:
		if o.Spec.Suspend != nil && *o.Spec.Suspend {
			return &desired{template: &o.Spec.Template}
		}
		n := number(o.Spec.Parallelism)
		if o.Spec.Completions != nil {
			n = min(n, int(*o.Spec.Completions))
		}
		return &desired{template: &o.Spec.Template, replicas: n}
	}
	return nil
}

// same reports whether two templates make equal pods.
func same(a, b *corev1.PodTemplateSpec) bool { return equality.Semantic.DeepEqual(a, b) }

func number(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// surge returns maxSurge as a number of pods.
func surge(r *appsv1.RollingUpdateDeployment, replicas int) int {
	quarter := intstr.FromString("25%")
	value := &quarter
	if r != nil && r.MaxSurge != nil {
		value = r.MaxSurge
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, true)
	if err != nil || n == 0 && r == nil {
		return 1
	}
	return n
}

// PlaceWorkload creates the workload's pods in the simulation. During a rollout
// an old pod goes for each new one beyond the surge, beginning with the last.
func (s *Simulation) PlaceWorkload(w *Workload) []Placement {
	switch {
	case w.PerNode:
		return s.placePerNode(w)
	case w.Old != nil:
		return s.rollOut(w)
	}
	var pods []*corev1.Pod
	for i := range w.New {
		pods = append(pods, w.pod(i))
	}
	return s.Place(pods...)
}

func (s *Simulation) rollOut(w *Workload) (out []Placement) {
	old := slices.Clone(w.Old)
	for i := range w.New {
		if i >= w.Surge && len(old) > 0 {
			s.Remove(old[len(old)-1])
			old = old[:len(old)-1]
		}
		out = append(out, s.Place(w.pod(i))...)
	}
	for _, p := range old {
		s.Remove(p)
	}
	return out
}

// pod returns the workload's pod of a number.
func (w *Workload) pod(i int) *corev1.Pod {
	p := w.Pod.DeepCopy()
	p.Namespace = w.Namespace
	p.UID = types.UID(fmt.Sprintf("plan %s %s/%s %d", w.Kind, w.Namespace, w.Name, i))
	if p.Spec.SchedulerName == "" {
		p.Spec.SchedulerName = corev1.DefaultSchedulerName
	}
	if w.Kind == "Pod" {
		return p
	}
	p.Name = fmt.Sprintf("%s-%d", w.Name, i)
	return p
}

// placePerNode places a DaemonSet's pods. Nodes whose labels or taints exclude
// the pod get none.
func (s *Simulation) placePerNode(w *Workload) (out []Placement) {
	for _, p := range w.Old {
		s.Remove(p)
	}
	names := make([]string, 0, len(s.nodes))
	for name := range s.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		p := w.pod(i)
		onlyOn(p, name)
		p.Spec.Tolerations = append(p.Spec.Tolerations, daemonTolerations...)
		p = s.claims.made(p)
		if !s.targets(p, name) {
			continue
		}
		out = append(out, s.Place(p)...)
	}
	return out
}

// targets reports whether a DaemonSet runs the pod on a node, which may be full.
func (s *Simulation) targets(p *corev1.Pod, node string) bool {
	for _, r := range s.refusals(p) {
		if r.Node == node {
			name := r.Plugin.Name()
			return name != "NodeAffinity" && name != "TaintToleration" && name != "NodeName" && name != "NodeUnschedulable"
		}
	}
	return true
}

// refusals returns the reasons of the nodes that do not take a pod, if none
// does.
func (s *Simulation) refusals(p *corev1.Pod) []framework.NodeReasons {
	_, err := s.algorithm.Schedule(s.snap, snapshot.NewPod(p))
	if fit := (*framework.FitError)(nil); errors.As(err, &fit) {
		return fit.Nodes
	}
	return nil
}

// onlyOn restricts a pod to one node, as the DaemonSet controller does.
func onlyOn(p *corev1.Pod, node string) {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	a := p.Spec.Affinity.NodeAffinity
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchFields = append(terms[i].MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}})
	}
}

// daemonTolerations are those that the DaemonSet controller adds to every pod.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}
