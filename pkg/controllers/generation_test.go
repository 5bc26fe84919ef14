package controllers_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// metadata.generation counts the writes of the deployment's user, not of controllers: a
// client waits for status.observedGeneration to reach the generation that its own write
// returned.
func TestControllersDoNotBumpGeneration(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		finished := func(what string, generation int64) {
			t.Helper()
			c.until(time.Minute, what+" is out", func() bool { return c.rolledOut("web") })
			c.quiet()
			d := c.deployment("web")
			if d.Generation != generation || d.Status.ObservedGeneration != generation {
				t.Errorf("after %s: generation %d, observed %d, want %d", what, d.Generation, d.Status.ObservedGeneration, generation)
			}
		}
		create(c, deploymentOf("web", 3, "v1", rolling(intstr.FromInt32(1), intstr.FromInt32(0))))
		finished("v1", 1)
		for _, rs := range c.sets() {
			if rs.Generation != 1 || rs.Status.ObservedGeneration != 1 {
				t.Errorf("the new replica set has generation %d, observed %d", rs.Generation, rs.Status.ObservedGeneration)
			}
		}
		edit(c, "web", setImage("v2"))
		finished("v2", 2)
		c.checkDone("web", "2")
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 5 })
		finished("five replicas", 3)
		edit(c, "web", setImage("v1"))
		finished("v1 again", 4)
		c.checkDone("web", "3")
		for _, p := range c.pods("app=web") {
			if p.Generation != 1 {
				t.Errorf("pod %s has generation %d: binding is no change of its user's", p.Name, p.Generation)
			}
		}
	})
}
