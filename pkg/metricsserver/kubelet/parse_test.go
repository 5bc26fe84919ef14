package kubelet

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/metricsserver/usage"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func TestParse(t *testing.T) {
	pod := types.NamespacedName{Namespace: "ns", Name: "p"}
	one := func(p usage.Point) map[types.NamespacedName]map[string]usage.Point {
		return map[types.NamespacedName]map[string]usage.Point{pod: {"c": p}}
	}
	none := map[types.NamespacedName]map[string]usage.Point{}
	const cpu, memory = `container_cpu_usage_seconds_total{container="c",namespace="ns",pod="p"} `, `container_memory_working_set_bytes{container="c",namespace="ns",pod="p"} `
	for name, row := range map[string]struct {
		reason, text string
		want         usage.Sample
		bad          bool
	}{
		"Nothing": {"an empty answer is a sample without measurements", "", usage.Sample{Pods: none}, false},
		"Container": {
			"timestamps are in milliseconds", cpu + "1.5 1767366245250\n" + memory + "4096 1767366245250\n" +
				`container_start_time_seconds{container="c",namespace="ns",pod="p"} 1.5e9` + "\n",
			usage.Sample{Pods: one(usage.Point{Time: time.UnixMilli(1767366245250), Start: time.Unix(1.5e9, 0), CPU: 1.5, Memory: 4096})}, false,
		},
		"NoTimestamp": {"the time of the request counts", cpu + "1\n" + memory + "2\n", usage.Sample{Pods: one(usage.Point{Time: now, CPU: 1, Memory: 2})}, false},
		"Node":        {"the node has no labels", "node_cpu_usage_seconds_total 2\nnode_memory_working_set_bytes 3\n", usage.Sample{Node: &usage.Point{Time: now, CPU: 2, Memory: 3}, Pods: none}, false},
		"LargeNode":   {"bytes are no nanoseconds", "node_cpu_usage_seconds_total 2e9\nnode_memory_working_set_bytes 4e12\n", usage.Sample{Node: &usage.Point{Time: now, CPU: 2e9, Memory: 4e12}, Pods: none}, false},
		"HalfNode":    {"a node without memory is not measured", "node_cpu_usage_seconds_total 2\n", usage.Sample{Pods: none}, false},
		"HalfPod":     {"a container without memory is not measured", cpu + "1\n", usage.Sample{Pods: none}, false},
		"NoLabel":     {"whose it is cannot be said", `container_cpu_usage_seconds_total{container="c",pod="p"} 1` + "\n", usage.Sample{Pods: none}, false},
		"NaN":         {"such values are not measurements", cpu + "NaN\n" + memory + "2\n", usage.Sample{Pods: none}, false},
		"Negative":    {"nor these", cpu + "-1\n" + memory + "2\n", usage.Sample{Pods: none}, false},
		"Infinite":    {"nor these", cpu + "+Inf\n" + memory + "2\n", usage.Sample{Pods: none}, false},
		"Others":      {"other series are ignored", "pod_cpu_usage_seconds_total{pod=\"p\",namespace=\"ns\"} 1\nresource_scrape_error 0\n", usage.Sample{Pods: none}, false},
		"Text":        {"what is no series is an error", "Unauthorized, I am afraid\n", usage.Sample{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(row.text), now)
			if (err != nil) != row.bad {
				t.Fatalf("%s: %v", row.reason, err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.reason, diff)
			}
		})
	}
}

// FuzzParse checks that no answer of a kubelet makes a value that cannot be computed with.
func FuzzParse(f *testing.F) {
	golden, err := os.ReadFile("../../kubelet/stats/testdata/resource.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(golden))
	f.Add("node_cpu_usage_seconds_total 1e300 9223372036854775807\nnode_memory_working_set_bytes 1e18\n")
	f.Add("# TYPE container_start_time_seconds histogram\ncontainer_start_time_seconds_bucket{le=\"1\"} 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		sample, err := Parse(strings.NewReader(text), now)
		if err != nil {
			return
		}
		store := usage.NewStore(15*time.Second, time.Minute, func() time.Time { return now })
		check := func(u usage.Usage) {
			if u.CPU < 0 || u.Window <= 0 {
				t.Errorf("%q makes %+v", text, u)
			}
		}
		store.Put("n", usage.Sample{Node: &usage.Point{Time: now}})
		store.Put("n", sample)
		if u, ok := store.Node("n"); ok {
			check(u)
		}
		for pod, containers := range sample.Pods {
			for _, u := range store.Pod("n", pod) {
				check(u)
			}
			for name, c := range containers {
				if name == "" || c.CPU < 0 {
					t.Errorf("%q makes %+v", text, c)
				}
			}
		}
	})
}
