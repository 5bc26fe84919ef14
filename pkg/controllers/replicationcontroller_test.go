package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// TestReplicationController follows a ReplicationController from its first pods to a delete
// without a propagation policy, which keeps the pods.
func TestReplicationController(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		of := deploymentOf("web", 2, "v1").Spec.Template
		orphan := create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: of.Labels}, Spec: of.Spec})
		time.Sleep(time.Second) // pods and replication controllers come from two informers
		rc := create(c, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ReplicationControllerSpec{
			Replicas: new(int32(3)), Template: &of,
		}})
		owned := func() (n int) {
			for _, p := range c.pods("") {
				if metav1.IsControlledBy(p, rc) {
					n++
				}
			}
			return n
		}
		rcs := client.For[*corev1.ReplicationController](c.Client).In("default")
		status := func() corev1.ReplicationControllerStatus {
			rc, err := rcs.Get(t.Context(), "web")
			if err != nil {
				t.Fatal(err)
			}
			return rc.Status
		}
		c.until(time.Minute, "the orphan is one of three", func() bool {
			s := status()
			return owned() == 3 && len(c.pods("")) == 3 && s.AvailableReplicas == 3 && s.FullyLabeledReplicas == 3 && s.ObservedGeneration == 1
		})
		if p := c.pods("")[0]; p.OwnerReferences[0].Kind != "ReplicationController" || p.OwnerReferences[0].APIVersion != "v1" {
			t.Errorf("the owner is %+v", p.OwnerReferences)
		}
		edit(c, orphan.Name, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} })
		c.until(time.Minute, "it is released and replaced", func() bool { return owned() == 3 && len(c.pods("")) == 4 })
		edit(c, "web", func(rc *corev1.ReplicationController) { rc.Spec.Replicas = new(int32(1)) })
		c.until(time.Minute, "the surplus is deleted", func() bool { return owned() == 1 && status().Replicas == 1 })
		c.quiet()

		if err := rcs.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.until(time.Minute, "it is gone", func() bool { return !exists[*corev1.ReplicationController](c, "default", "web") })
		time.Sleep(time.Minute)
		for _, p := range c.pods("") {
			if len(p.OwnerReferences) != 0 || p.DeletionTimestamp != nil {
				t.Errorf("pod %s: owners %v, deleted %v", p.Name, p.OwnerReferences, p.DeletionTimestamp)
			}
		}
		if len(c.pods("")) != 2 {
			t.Errorf("%d pods are left, want 2", len(c.pods("")))
		}
	})
}

// TestPodsOfTwoOwners deletes one owner in the foreground: the pods that another one owns as
// well lose only the reference.
func TestPodsOfTwoOwners(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		of, other := deploymentOf("first", 1, "v1").Spec.Template, deploymentOf("second", 1, "v1").Spec.Template
		create(c, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(6)), Template: &of}})
		second := create(c, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(0)), Template: &other}})
		c.until(time.Minute, "the first has its pods", func() bool { ready, _ := c.readyPods("app=first"); return ready == 6 })
		for _, p := range c.pods("")[:3] {
			edit(c, p.Name, func(p *corev1.Pod) {
				p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: second.Name, UID: second.UID})
			})
		}
		remove[*corev1.ReplicationController](c, "first", metav1.DeletePropagationForeground)
		c.until(time.Minute, "the first is gone", func() bool { return !exists[*corev1.ReplicationController](c, "default", "first") })
		left := c.pods("")
		if len(left) != 3 {
			t.Errorf("%d pods are left, want 3", len(left))
		}
		for _, p := range left {
			if p.DeletionTimestamp != nil || len(p.OwnerReferences) != 1 || p.OwnerReferences[0].UID != second.UID {
				t.Errorf("pod %s: deleted %v, owners %+v", p.Name, p.DeletionTimestamp, p.OwnerReferences)
			}
		}
	})
}
