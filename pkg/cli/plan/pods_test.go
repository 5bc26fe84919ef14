package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/cli/plan"
)

// template makes pods that request whole CPUs.
func template(cpus int) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: sized("w", cpus, 0).Spec}
}

// TestPodsOfWorkloads: which pods a change creates, on two nodes of four CPUs.
func TestPodsOfWorkloads(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "w"}
	deployment := func(replicas int32, cpus, surge int) *appsv1.Deployment {
		max := intstr.FromInt(surge)
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: template(cpus),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &max}}}}
	}
	paused := deployment(2, 1, 0)
	paused.Spec.Paused = true
	job := func(parallelism, completions int32) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &parallelism, Completions: &completions, Template: template(1)}}
	}
	yes, two := true, int32(2)
	suspended := job(2, 2)
	suspended.Spec.Suspend = &yes
	tainted := template(1)
	tainted.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	for name, row := range map[string]struct {
		reason   string
		old, new any
		owned    int // pods of three CPUs, one on each node
		want     string
	}{
		"DeploymentCreated":    {reason: "one pod per replica", new: deployment(3, 1, 1), want: "n1 n2 n1"},
		"DeploymentScaledUp":   {reason: "only the new ones", old: deployment(1, 1, 1), new: deployment(2, 1, 1), want: "n1"},
		"DeploymentScaledDown": {reason: "none is created", old: deployment(3, 1, 1), new: deployment(1, 1, 1), want: ""},
		"DeploymentSame":       {reason: "nothing to do", old: deployment(3, 1, 1), new: deployment(3, 1, 1), want: ""},
		"DeploymentPaused":     {reason: "it creates no pods", new: paused, want: ""},
		"RolloutWithSurge":     {reason: "the first new pod finds no room beside the old ones, the next takes that of the last old one", old: deployment(2, 3, 1), new: deployment(2, 2, 1), owned: 2, want: "pending n2"},
		"RolloutWithoutSurge":  {reason: "an old pod goes first each time", old: deployment(2, 3, 0), new: deployment(2, 2, 0), owned: 2, want: "n2 n1"},
		"ReplicaSetTemplate":   {reason: "pods that exist keep their template", old: &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &two, Template: template(3)}}, new: &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &two, Template: template(1)}}, owned: 2, want: ""},
		"StatefulSetCreated":   {reason: "one pod per replica", new: &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &two, Template: template(1)}}, want: "n1 n2"},
		"DaemonSetCreated":     {reason: "a pod on each node", new: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template(1)}}, want: "n1 n2"},
		"DaemonSetFull":        {reason: "a node that is full gets a pending pod", new: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template(5)}}, want: "pending pending"},
		"DaemonSetSelects":     {reason: "a node with other labels gets none", new: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: tainted}}, want: "n2"},
		"DaemonSetSame":        {reason: "nothing to do", old: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template(1)}}, new: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template(1)}}, want: ""},
		"JobCreated":           {reason: "no more than completions", new: job(3, 2), want: "n1 n2"},
		"JobSuspended":         {reason: "it creates no pods", new: suspended, want: ""},
		"PodCreated":           {reason: "the pod itself", new: sized("p", 1, 0), want: "n1"},
		"PodExists":            {reason: "it has a node already", old: sized("p", 1, 0), new: sized("p", 1, 0), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &plan.Cluster{Nodes: []*corev1.Node{machine("n1"), machine("n2")}}
			c.Nodes[1].Labels = map[string]string{"disk": "ssd"}
			var owned []*corev1.Pod
			for i := range row.owned {
				p := sized(fmt.Sprint("old", i), 3, 0)
				p.UID, p.Spec.NodeName = types.UID(p.Name), c.Nodes[i].Name
				owned = append(owned, p)
			}
			c.Pods = owned
			var got []string
			for _, p := range plan.New(c).PlaceWorkload(plan.Of(row.old, row.new, owned)) {
				if p.Node == "" {
					p.Node = "pending"
				}
				got = append(got, p.Node)
			}
			if diff := cmp.Diff(row.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s:\n%s", row.reason, diff)
			}
		})
	}
	if w := plan.Of(nil, &corev1.Service{}, nil); w != nil {
		t.Errorf("a Service has pods: %+v", w)
	}
}

// TestChanges: what is said of the fields that an apply changes.
func TestChanges(t *testing.T) {
	object := func(kind string, fields map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: fields}
		o.SetKind(kind)
		return o
	}
	containers := func(image string, more ...any) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": append([]any{map[string]any{"name": "c", "image": image}}, more...)}}
	}
	for name, row := range map[string]struct {
		old, new *unstructured.Unstructured
		want     []string
	}{
		"Same":    {object("Pod", containers("a")), object("Pod", containers("a")), nil},
		"Named":   {object("Pod", containers("a")), object("Pod", containers("b")), []string{`spec.containers[c].image: "a" → "b"`}},
		"Added":   {object("Pod", containers("a")), object("Pod", containers("a", map[string]any{"name": "d"})), []string{`spec.containers[d]: (none) → {"name":"d"}`}},
		"Status":  {object("Pod", map[string]any{"status": map[string]any{"phase": "Running"}}), object("Pod", map[string]any{"metadata": map[string]any{"generation": int64(2)}}), nil},
		"Secrets": {object("Secret", map[string]any{"data": map[string]any{"a": "eA==", "b": "eA=="}}), object("Secret", map[string]any{"data": map[string]any{"a": "eQ=="}}), []string{"data.a: (hidden) → (hidden)", "data.b: (hidden) → (none)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if row.new.Object["metadata"] == nil {
				row.new.Object["metadata"] = map[string]any{}
			}
			if row.old.Object["metadata"] == nil {
				row.old.Object["metadata"] = map[string]any{}
			}
			if diff := cmp.Diff(row.want, plan.Changes(row.old, row.new)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
