package controllers_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// startDaemons begins the part of the story about DaemonSets and disruption budgets.
func (c *cluster) startDaemons() {
	create(c, daemonSetOf("agent", "broken"))
	create(c, daemonSetOf("surge", "v1", rollingDaemon(intstr.FromInt32(1), intstr.FromInt32(0))))
	create(c, daemonSetOf("few", "v1", func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{"colour": "blue"}
		ds.Spec.RevisionHistoryLimit = new(int32(0))
	}))
	colour(c, "node-1", "blue")
	create(c, budgetOf("web", maxUnavailable("2")))
}

// disruptDaemons changes templates and nodes, makes a pod fail, and evicts what the budget
// allows.
func (c *cluster) disruptDaemons() {
	edit(c, "agent", daemonImage("v1"))
	edit(c, "surge", daemonImage("v2"))
	edit(c, "few", daemonImage("v2"))
	colour(c, "node-1", "green")
	colour(c, "node-2", "blue")
	for range 5 {
		for _, p := range firstOf(c.pods("app=web"), 3) {
			if err := c.evict(p.Name); err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
				c.t.Errorf("evict %s: %v", p.Name, err)
			}
		}
		time.Sleep(time.Second)
	}
	for _, p := range firstOf(c.pods("app=surge"), 1) {
		remove[*corev1.Pod](c, p.Name, metav1.DeletePropagationBackground)
	}
	edit(c, "surge", daemonImage("v1"))
}

func firstOf(pods []*corev1.Pod, n int) []*corev1.Pod { return pods[:min(n, len(pods))] }

// daemonState describes what must not depend on faults.
func (c *cluster) daemonState() (out []string) {
	for _, ds := range all[*appsv1.DaemonSet](c, "") {
		s := ds.Status
		out = append(out, fmt.Sprintf("daemonset %s: %d of %d available, %d updated, %d misscheduled, %s, generation %d", ds.Name,
			s.NumberAvailable, s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberMisscheduled, images(c.pods("app="+ds.Name)), s.ObservedGeneration))
		revisions := all[*appsv1.ControllerRevision](c, "app="+ds.Name)
		if *ds.Spec.RevisionHistoryLimit == 0 || len(revisions) == 0 {
			out = append(out, fmt.Sprintf("revisions of %s: %d", ds.Name, len(revisions)))
		}
	}
	for _, b := range all[*policyv1.PodDisruptionBudget](c, "") {
		s := b.Status
		out = append(out, fmt.Sprintf("budget %s: %d of %d healthy, %d desired, %d allowed, %d disrupted", b.Name,
			s.CurrentHealthy, s.ExpectedPods, s.DesiredHealthy, s.DisruptionsAllowed, len(s.DisruptedPods)))
	}
	return out
}
