package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/client"
)

// statefulSetOf returns a set of pods with one container of this image.
func statefulSetOf(name string, replicas int32, image string, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	of := deploymentOf(name, replicas, image)
	set := &appsv1.StatefulSet{ObjectMeta: of.ObjectMeta, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: of.Spec.Selector, Template: of.Spec.Template, ServiceName: name,
	}}
	for _, f := range change {
		f(set)
	}
	return set
}

func parallel(set *appsv1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
}

func partition(n int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
			Type:          appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n},
		}
	}
}

func setImageOf(image string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = image }
}

func (c *cluster) statefulSet(name string) *appsv1.StatefulSet {
	set, err := client.For[*appsv1.StatefulSet](c.Client).In("default").Get(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return set
}

// podsOf describes the pods of a set by ordinal: image, "+" if ready, "-" if being deleted.
func (c *cluster) podsOf(name string) string {
	var out []string
	for _, p := range c.pods("app=" + name) {
		text := strings.TrimPrefix(p.Name, name+"-") + ":" + p.Spec.Containers[0].Image
		if readyAsItShouldBe(p) && !strings.HasPrefix(p.Spec.Containers[0].Image, "broken") {
			text += "+"
		}
		if p.DeletionTimestamp != nil {
			text += "-"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (c *cluster) hasPods(name, want string) {
	c.t.Helper()
	c.until(5*time.Minute, "the pods of "+name+" are "+want, func() bool { return c.podsOf(name) == want })
}

// order records the sequence of states of a set's pods until the last of them is want.
func (c *cluster) order(name, want string) (seen []string) {
	c.t.Helper()
	c.poll(5*time.Minute, 10*time.Millisecond, "the pods of "+name+" become "+want, func() bool {
		now := c.podsOf(name)
		if len(seen) == 0 || seen[len(seen)-1] != now {
			seen = append(seen, now)
		}
		return now == want
	})
	return seen
}

func (c *cluster) revisions() []*appsv1.ControllerRevision {
	return all[*appsv1.ControllerRevision](c, "")
}

// hasEvent fails the test if there is no event with this reason and message.
func (c *cluster) hasEvent(want string) {
	c.t.Helper()
	if !slices.ContainsFunc(c.events(), func(e *corev1.Event) bool { return e.Reason+" "+e.Message == want }) {
		c.t.Errorf("no event %q\n%s", want, c.dump())
	}
}

func TestStatefulSetIsOrdered(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 3, "v1"))
		for _, s := range c.order("web", "0:v1+ 1:v1+ 2:v1+") {
			if fields := strings.Fields(s); strings.Count(s, "+") < len(fields)-1 {
				t.Errorf("a pod is created before those before it are ready: %s", s)
			}
		}
		pod := c.pods("app=web")[1]
		if pod.Name != "web-1" || pod.Spec.Hostname != "web-1" || pod.Spec.Subdomain != "web" || pod.GenerateName != "web-" ||
			pod.Labels["statefulset.kubernetes.io/pod-name"] != "web-1" || pod.Labels["apps.kubernetes.io/pod-index"] != "1" {
			t.Errorf("the identity of web-1 is %+v, host name %s.%s", pod.ObjectMeta, pod.Spec.Hostname, pod.Spec.Subdomain)
		}
		edit(c, "web", setImageOf("v2"))
		seen := strings.Join(c.order("web", "0:v2+ 1:v2+ 2:v2+"), "\n")
		for _, at := range []string{"0:v1+ 1:v1+ 2:v2", "0:v1+ 1:v2 2:v2+", "0:v2 1:v2+ 2:v2+"} {
			if !strings.Contains(seen, at) {
				t.Errorf("the update never was at %q:\n%s", at, seen)
			}
		}
		c.until(time.Minute, "the status shows the update", func() bool {
			s := c.statefulSet("web").Status
			return s.CurrentRevision == s.UpdateRevision && s.CurrentReplicas == 3 && s.AvailableReplicas == 3 && s.ObservedGeneration == 2
		})
		edit(c, "web", func(set *appsv1.StatefulSet) { *set.Spec.Replicas = 1 })
		seen = strings.Join(c.order("web", "0:v2+"), "\n")
		if strings.Contains(seen, "1:v2+- 2") {
			t.Errorf("web-1 is deleted before web-2 is gone:\n%s", seen)
		}
		c.hasEvent("SuccessfulCreate create Pod web-0 in StatefulSet web successful")
		c.hasEvent("SuccessfulDelete delete Pod web-2 in StatefulSet web successful")
		c.quiet()
	})
}

func TestStatefulSetRollback(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 2, "v1"))
		c.hasPods("web", "0:v1+ 1:v1+")
		first := c.statefulSet("web").Status.UpdateRevision
		edit(c, "web", setImageOf("v2"))
		c.hasPods("web", "0:v2+ 1:v2+")
		edit(c, "web", setImageOf("v1"))
		c.hasPods("web", "0:v1+ 1:v1+")
		c.quiet()
		s := c.statefulSet("web").Status
		if s.UpdateRevision != first || s.CurrentRevision != first || len(c.revisions()) != 2 {
			t.Errorf("the status is %+v with %d revisions, want that the first one, %s, of two", s, len(c.revisions()), first)
		}
		for _, r := range c.revisions() {
			if want := map[bool]int64{true: 3, false: 2}[r.Name == first]; r.Revision != want {
				t.Errorf("revision %s has number %d, want %d", r.Name, r.Revision, want)
			}
		}
		edit(c, "web", func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = new(int32(0)) })
		c.until(time.Minute, "the history is truncated", func() bool { return len(c.revisions()) == 1 })
	})
}

// TestBrokenStatefulSetIsFixed breaks a set in each of the ways in which upstream leaves the
// pods of the broken revision to the user.
func TestBrokenStatefulSetIsFixed(t *testing.T) {
	for name, policy := range map[string]func(*appsv1.StatefulSet){"ordered": func(*appsv1.StatefulSet) {}, "parallel": parallel} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(t *testing.T, c *cluster) {
				create(c, statefulSetOf("web", 3, "broken", policy))
				time.Sleep(time.Minute)
				edit(c, "web", setImageOf("v1"))
				c.hasPods("web", "0:v1+ 1:v1+ 2:v1+")
				for _, fixed := range []string{"v2", "v2"} { // the second time, back to the revision before
					c.quiet()
					edit(c, "web", setImageOf("broken"))
					time.Sleep(time.Minute)
					if got := c.podsOf("web"); strings.Count(got, "broken") != 1 {
						t.Errorf("a revision that is not ready goes on: %s", got)
					}
					edit(c, "web", setImageOf(fixed))
					c.hasPods("web", fmt.Sprintf("0:%[1]s+ 1:%[1]s+ 2:%[1]s+", fixed))
				}
				c.quiet()
			})
		})
	}
}

func TestStatefulSetPartition(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 3, "v1", partition(2)))
		c.hasPods("web", "0:v1+ 1:v1+ 2:v1+")
		edit(c, "web", setImageOf("v2"))
		c.hasPods("web", "0:v1+ 1:v1+ 2:v2+")
		c.quiet()
		remove[*corev1.Pod](c, "web-0", metav1.DeletePropagationBackground)
		remove[*corev1.Pod](c, "web-2", metav1.DeletePropagationBackground)
		time.Sleep(10 * time.Second)
		c.hasPods("web", "0:v1+ 1:v1+ 2:v2+")
		if s := c.statefulSet("web").Status; s.CurrentReplicas != 2 || s.UpdatedReplicas != 1 || s.CurrentRevision == s.UpdateRevision {
			t.Errorf("the status is %+v", s)
		}
		edit(c, "web", partition(0))
		c.hasPods("web", "0:v2+ 1:v2+ 2:v2+")
		c.quiet()
	})
}

func TestParallelStatefulSet(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 4, "v1", parallel, func(set *appsv1.StatefulSet) {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
			set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromString("50%"))}
		}))
		c.until(time.Second, "all pods are created at once", func() bool { return len(c.pods("")) == 4 })
		c.hasPods("web", "5:v1+ 6:v1+ 7:v1+ 8:v1+")
		edit(c, "web", setImageOf("v2"))
		c.until(time.Minute, "two pods are replaced at a time", func() bool { return c.podsOf("web") == "5:v1+ 6:v1+ 7:v1+- 8:v1+-" })
		for _, s := range c.order("web", "5:v2+ 6:v2+ 7:v2+ 8:v2+") {
			if strings.Count(s, "+")-strings.Count(s, "-") < 2 {
				t.Errorf("more than two pods are unavailable: %s", s)
			}
		}
		edit(c, "web", func(set *appsv1.StatefulSet) { *set.Spec.Replicas = 0 })
		c.until(time.Second, "all pods are deleted at once", func() bool { return strings.Count(c.podsOf("web"), "-") == 4 })
		c.hasPods("web", "")
		c.quiet()
	})
}

func TestStatefulSetOnDelete(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 2, "v1", func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}))
		c.hasPods("web", "0:v1+ 1:v1+")
		edit(c, "web", setImageOf("v2"))
		c.quiet()
		c.hasPods("web", "0:v1+ 1:v1+")
		remove[*corev1.Pod](c, "web-0", metav1.DeletePropagationBackground)
		time.Sleep(10 * time.Second)
		c.hasPods("web", "0:v2+ 1:v1+")
	})
}

// TestStatefulSetAdopts deletes a set without its pods and creates it again.
func TestStatefulSetAdopts(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 2, "v1"))
		c.hasPods("web", "0:v1+ 1:v1+")
		before := c.pods("")
		remove[*appsv1.StatefulSet](c, "web", metav1.DeletePropagationOrphan)
		c.until(time.Minute, "the set is gone", func() bool { return !exists[*appsv1.StatefulSet](c, "default", "web") })
		time.Sleep(time.Minute)
		other := statefulSetOf("web", 0, "v1").Spec.Template
		create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x", Labels: other.Labels}, Spec: other.Spec})
		set := create(c, statefulSetOf("web", 2, "v1"))
		c.quiet()
		for i, p := range c.pods("") {
			if i < 2 && (p.UID != before[i].UID || !metav1.IsControlledBy(p, set)) || i == 2 && len(p.OwnerReferences) > 0 {
				t.Errorf("pod %s: UID %s, owners %v", p.Name, p.UID, p.OwnerReferences)
			}
		}
		if n := len(c.revisions()); n != 1 {
			t.Errorf("%d revisions, want the adopted one", n)
		}
		edit(c, "web-0", func(p *corev1.Pod) { delete(p.Labels, "apps.kubernetes.io/pod-index") })
		c.until(time.Minute, "the label is back", func() bool { return c.pods("")[0].Labels["apps.kubernetes.io/pod-index"] == "0" })
		edit(c, "web-1", func(p *corev1.Pod) { p.Labels["app"] = "other" })
		c.until(time.Minute, "the pod that does not match is released", func() bool { return len(c.pods("app=other")[0].OwnerReferences) == 0 })
		remove[*corev1.Pod](c, "web-1", metav1.DeletePropagationBackground)
		c.hasPods("web", "0:v1+ 1:v1+ x:v1+")
		c.quiet()
	})
}

func TestStatefulSetRecreatesFailedPods(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		create(c, statefulSetOf("web", 2, "v1", func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 30 }))
		c.hasPods("web", "0:v1+ 1:v1+")
		c.until(time.Minute, "both are available", func() bool { return c.statefulSet("web").Status.AvailableReplicas == 2 })
		old := c.pods("")[0]
		failed := old.DeepCopy()
		failed.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		if _, err := client.For[*corev1.Pod](c.Client).In("default").UpdateStatus(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
		c.until(20*time.Second, "web-0 is another pod, which is ready and not available yet", func() bool {
			s := c.statefulSet("web").Status // at first the status of before
			return c.pods("")[0].UID != old.UID && s.ReadyReplicas == 2 && s.AvailableReplicas == 1
		})
		c.until(time.Minute, "both are available", func() bool { return c.statefulSet("web").Status.AvailableReplicas == 2 })
		c.hasEvent("RecreatingFailedPod StatefulSet default/web is recreating failed Pod web-0")
	})
}

func TestStatefulSetDeletePolicies(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
			create(c, statefulSetOf("web", 2, "v1"))
			c.hasPods("web", "0:v1+ 1:v1+")
			remove[*appsv1.StatefulSet](c, "web", policy)
			c.until(time.Minute, "the set is gone", func() bool {
				gone := !exists[*appsv1.StatefulSet](c, "default", "web")
				if gone && policy == metav1.DeletePropagationForeground && len(c.pods(""))+len(c.revisions()) > 0 {
					t.Fatal("in the foreground the owner goes last")
				}
				return gone
			})
			c.until(time.Minute, "its pods and revisions are gone", func() bool { return len(c.pods(""))+len(c.revisions()) == 0 })
			c.quiet()
		}
	})
}
