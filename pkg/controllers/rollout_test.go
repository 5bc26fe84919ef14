package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestRollingUpdate(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 10, "v1", rolling(intstr.FromString("25%"), intstr.FromString("25%"))))
		c.until(time.Minute, "v1 is out", func() bool { return c.rolledOut("web") })
		c.quiet()
		edit(c, "web", setImage("v2"))
		c.until(time.Minute, "v2 is out", func() bool {
			ready, total := c.readyPods("app=web")
			if ready < 8 || total > 13 {
				t.Fatalf("%d pods of which %d are ready: 25%% of 10 may be missing (rounded down) or too many (rounded up)", total, ready)
			}
			return c.rolledOut("web")
		})
		if got := images(c.pods("")); got != "v2:10" {
			t.Errorf("pods: %s", got)
		}
		c.checkDone("web", "2")
		c.quiet()
	})
}

// readyPods counts the pods that are not terminating.
func (c *cluster) readyPods(selector string) (ready, total int) {
	for _, p := range c.pods(selector) {
		if p.DeletionTimestamp != nil {
			continue
		}
		total++
		for _, cond := range p.Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready, total
}

// checkDone checks the deployment after a finished rollout.
func (c *cluster) checkDone(name, revision string) {
	c.t.Helper()
	d := c.deployment(name)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != revision {
		c.t.Errorf("revision %s, want %s", got, revision)
	}
	for _, cond := range d.Status.Conditions {
		want := map[appsv1.DeploymentConditionType]string{
			appsv1.DeploymentProgressing: "NewReplicaSetAvailable", appsv1.DeploymentAvailable: "MinimumReplicasAvailable",
		}[cond.Type]
		if cond.Reason != want || cond.Status != corev1.ConditionTrue {
			c.t.Errorf("condition %+v", cond)
		}
	}
}

func TestRecreate(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 5, "v1", recreate))
		c.until(time.Minute, "v1 is out", func() bool { return c.rolledOut("web") })
		edit(c, "web", setImage("v2"))
		c.until(time.Minute, "v2 is out", func() bool {
			var have []string // terminating pods run, too
			for _, p := range c.pods("app=web") {
				have = append(have, p.Spec.Containers[0].Image)
			}
			if slices.Contains(have, "v1") && slices.Contains(have, "v2") {
				t.Fatalf("old and new pods at the same time: %v", have)
			}
			return c.rolledOut("web")
		})
		c.checkDone("web", "2")
		c.quiet()
	})
}

func TestRollback(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		limit := int32(2)
		create(c, deploymentOf("web", 3, "v1", func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = &limit }))
		for i, image := range []string{"v1", "v2", "v3", "v4", "v2"} {
			edit(c, "web", setImage(image))
			c.until(time.Minute, image+" is out", func() bool { return c.rolledOut("web") })
			time.Sleep(10 * time.Second)
			c.checkDone("web", fmt.Sprint(i+1))
		}
		var sets []string
		for _, rs := range c.sets() {
			sets = append(sets, fmt.Sprintf("%s r%s was %q x%d", rs.Spec.Template.Spec.Containers[0].Image,
				rs.Annotations["deployment.kubernetes.io/revision"], rs.Annotations["deployment.kubernetes.io/revision-history"], *rs.Spec.Replicas))
		}
		slices.Sort(sets)
		want := `v2 r5 was "2" x3, v3 r3 was "" x0, v4 r4 was "" x0`
		if got := strings.Join(sets, ", "); got != want {
			t.Errorf("the oldest of three old sets is history, the one that came back has a new revision\n got %s\nwant %s", got, want)
		}
		c.quiet()
	})
}

func TestPause(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 3, "v1"))
		c.until(time.Minute, "v1 is out", func() bool { return c.rolledOut("web") })
		edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Paused = true; setImage("v2")(d) })
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 })
		c.until(time.Minute, "a paused deployment still scales", func() bool { return images(c.pods("")) == "v1:5" })
		c.quiet()
		if got := images(c.pods("")); got != "v1:5" {
			t.Errorf("a paused deployment rolled: %s", got)
		}
		edit(c, "web", func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.until(time.Minute, "v2 is out", func() bool { return c.rolledOut("web") && images(c.pods("")) == "v2:5" })
		c.quiet()
	})
}

func TestProportionalScaling(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 10, "v1", rolling(intstr.FromInt32(3), intstr.FromInt32(2))))
		c.until(time.Minute, "v1 is out", func() bool { return c.rolledOut("web") })
		edit(c, "web", setImage("broken"))
		time.Sleep(time.Minute)
		if got := images(c.pods("")); got != "broken:5 v1:8" {
			t.Fatalf("a rollout that is stuck: %s, want 8 old and 5 new ones", got)
		}
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 30 })
		time.Sleep(time.Minute)
		if got := images(c.pods("")); got != "broken:13 v1:20" {
			t.Errorf("scaled to 30: %s, want 20 old and 13 new ones", got)
		}
		c.quiet()
		edit(c, "web", setImage("v3"))
		c.until(time.Minute, "v3 takes over", func() bool { return c.rolledOut("web") && images(c.pods("")) == "v3:30" })
		c.quiet()
	})
}

func TestProgressDeadline(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, deploymentOf("web", 2, "broken", func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(30)) }))
		reason := func() string {
			for _, cond := range c.deployment("web").Status.Conditions {
				if cond.Type == appsv1.DeploymentProgressing {
					return cond.Reason
				}
			}
			return ""
		}
		time.Sleep(25 * time.Second)
		if got := reason(); got == "ProgressDeadlineExceeded" {
			t.Errorf("timed out before the deadline")
		}
		c.until(15*time.Second, "the deadline has passed", func() bool { return reason() == "ProgressDeadlineExceeded" })
		c.quiet()
		edit(c, "web", setImage("v2"))
		c.until(time.Minute, "v2 is out", func() bool { return c.rolledOut("web") && reason() == "NewReplicaSetAvailable" })
	})
}

func TestMinReadySeconds(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		began := time.Now()
		create(c, deploymentOf("web", 2, "v1", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 20 }))
		c.until(time.Minute, "available", func() bool { return c.rolledOut("web") })
		if took := time.Since(began); took < 19*time.Second || took > 25*time.Second {
			t.Errorf("available after %s, want about 20 s (conditions have whole seconds)", took)
		}
	})
}

func TestAdoptAndRelease(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		labels := map[string]string{"app": "web"}
		d := deploymentOf("web", 2, "v1")
		orphan := create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: labels}, Spec: d.Spec.Template.Spec})
		time.Sleep(time.Second) // pods and replica sets come from two informers
		rs := create(c, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels}, Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(2)), Selector: d.Spec.Selector, Template: d.Spec.Template,
		}})
		owned := func() (n int, orphaned string) {
			for _, p := range c.pods("") {
				if metav1.IsControlledBy(p, rs) {
					n++
				} else {
					orphaned += p.Name
				}
			}
			return n, orphaned
		}
		c.until(time.Minute, "the orphan is one of two", func() bool { n, o := owned(); return n == 2 && o == "" })
		edit(c, orphan.Name, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} })
		c.until(time.Minute, "it is let go and replaced", func() bool { n, o := owned(); return n == 2 && o == "orphan" })
		edit(c, orphan.Name, func(p *corev1.Pod) { p.Labels = labels })
		c.until(time.Minute, "it is taken back and a pod too many goes", func() bool { n, o := owned(); return n == 2 && o == "" })
		c.quiet()

		create(c, deploymentOf("web", 2, "v2"))
		c.until(time.Minute, "the deployment takes the set over and rolls to its template", func() bool {
			return c.rolledOut("web") && images(c.pods("")) == "v2:2"
		})
		c.checkDone("web", "1") // the adopted set had none
		c.quiet()
	})
}

func TestBigDeploymentIsCreatedInSeconds(t *testing.T) {
	inCluster(t, 10, func(t *testing.T, c *cluster) {
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		}})
		real := time.Now()
		create(c, deploymentOf("web", 1000, "v1"))
		c.until(time.Minute, "all are ready", func() bool { time.Sleep(time.Second); return c.rolledOut("web") })
		t.Logf("1000 pods ready after %s of virtual time, %d writes and %d requests of the controllers", time.Since(real), c.writes.Load(), c.requests.Load())
		c.until(time.Minute, "the slices have them all", func() bool { return c.endpoints("web") == 1000 })
		if n := len(all[*discoveryv1.EndpointSlice](c, discoveryv1.LabelServiceName+"=web")); n > 20 {
			t.Errorf("%d slices for 1000 endpoints", n)
		}
		c.quiet()
	})
}

// endpoints counts the ready endpoints in a service's slices; each pod must appear once.
func (c *cluster) endpoints(service string) int {
	seen := map[string]bool{}
	for _, es := range all[*discoveryv1.EndpointSlice](c, discoveryv1.LabelServiceName+"="+service) {
		for _, e := range es.Endpoints {
			if seen[string(e.TargetRef.UID)] {
				c.t.Fatalf("pod %s is in two slices", e.TargetRef.Name)
			}
			if *e.Conditions.Ready {
				seen[string(e.TargetRef.UID)] = true
			}
		}
	}
	return len(seen)
}

// slices counts a service's slices.
func (c *cluster) slices(service string) int {
	return len(all[*discoveryv1.EndpointSlice](c, discoveryv1.LabelServiceName+"="+service))
}
