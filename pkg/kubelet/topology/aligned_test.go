package topology

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Only the policy single-numa-node guarantees that resources lie within a node.
func TestAlignedResourcesAreCounted(t *testing.T) {
	const done, failed = "kubelet_container_aligned_compute_resources_count", "kubelet_container_aligned_compute_resources_failure_count"
	one, both := Hint{Nodes: 2, Preferred: true}, Hint{Nodes: 3}
	for name, c := range map[string]struct {
		policy, scope string
		hint          Hint
		fail          bool
		want          string
	}{
		"each container":       {policy: SingleNode, hint: one, want: done + ` container 2`},
		"the pod":              {policy: SingleNode, scope: ScopePod, hint: one, want: done + ` pod 1`},
		"a container does not": {policy: SingleNode, hint: both, want: failed + ` container 1`},
		"the pod does not":     {policy: SingleNode, scope: ScopePod, hint: both, want: failed + ` pod 1`},
		"no CPU is left":       {policy: SingleNode, hint: one, fail: true, want: done + ` container 1`},
		"no guarantee":         {policy: Restricted, hint: one},
		"no alignment":         {policy: None},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{hints: map[string][]Hint{"cpu": {c.hint}}, fail: errors.New("no CPU")}
			if c.fail {
				p.failAt = "app"
			}
			r := prometheus.NewRegistry()
			m, err := New(Config{Policy: c.policy, Scope: c.scope, Machine: two.Machine(), Providers: []Provider{p}, Aligned: NewAligned(r)})
			if err != nil {
				t.Fatal(err)
			}
			m.Admit(testPod())
			var want string
			if metric, rest, ok := strings.Cut(c.want, " "); ok {
				scope, n, _ := strings.Cut(rest, " ")
				help := map[string]string{done: "were", failed: "could not be"}[metric]
				want = "# HELP " + metric + " Number of pods or containers whose resources " + help + " aligned, by scope and boundary.\n# TYPE " + metric + " counter\n" +
					metric + `{boundary="numa_node",scope="` + scope + `"} ` + n + "\n"
			}
			if err := testutil.GatherAndCompare(r, strings.NewReader(want), done, failed); err != nil {
				t.Error(err)
			}
		})
	}
}
