package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestPlan plans a Deployment and a pod that is too large, finds nothing of them
// in the cluster, and applies them: the pods land, or wait, as planned.
func TestPlan(t *testing.T) {
	t.Parallel()
	c := &cli{space: newSpace(t), dir: t.TempDir()}
	file := c.file("app.yaml", workload("apps/v1", "Deployment", "web", "replicas: 2\n  "+selects("web"), "", "")+"\n---"+podWith("large", `resources: {requests: {cpu: 1k}}`, ""))
	planned := c.podium("plan", "-f", file)
	for _, line := range []string{
		"deployment.apps/web created\n",
		"    pod " + c.name + "/web-0 → node-a: the only one of 1 nodes that fits\n",
		"    pod " + c.name + "/web-1 → node-a: ",
		"pod/large created\n",
		"    pod " + c.name + "/large → pending: 0/1 nodes are available: 1 Insufficient cpu.",
	} {
		if !strings.Contains(planned, line) {
			t.Errorf("podium plan printed\n%s\nwithout %q", planned, line)
		}
	}
	if got := c.podium("get", "deployments,pods", "-o", "name"); got != "" {
		t.Errorf("the plan has created %s", got)
	}
	c.podium("apply", "-f", file)
	c.rolledOut("web")
	for _, pod := range c.pods("app=web") {
		if pod.Spec.NodeName != "node-a" {
			t.Errorf("pod %s is on node %q", pod.Name, pod.Spec.NodeName)
		}
	}
	c.said("large", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.")
	c.says(`(?m)^deployment.apps/web unchanged$`, "plan", "-f", file)
	// The exit code depends on the budgets of tests that run at the same time.
	drain, _ := the.try(t.Context(), "", the.bin("podium"), "plan", "drain", "node-a")
	want := regexp.MustCompile(`(?m)^pod ` + c.name + `/web-\S+ is evicted\n    pod \S+ → pending: 0/1 nodes are available: 1 node\(s\) were unschedulable`)
	if !want.MatchString(drain) {
		t.Errorf("podium plan drain printed\n%s\nwithout %q", drain, want)
	}
}
