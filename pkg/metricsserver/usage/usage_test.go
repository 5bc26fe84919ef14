package usage

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

const resolution = 15 * time.Second

var begin = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// at returns a point of a container that started at start; both are seconds after begin.
func at(second, start int, cpu float64) Point {
	return Point{Time: begin.Add(time.Duration(second) * time.Second), Start: begin.Add(time.Duration(start) * time.Second), CPU: cpu, Memory: 7}
}

func TestUsageOfAContainer(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		points []Point
		want   *Usage // nil: not known
	}{
		"OnePoint":     {"a rate needs two points", []Point{at(0, -100, 5)}, nil},
		"TwoPoints":    {"half a core for 15 s", []Point{at(0, -100, 5), at(15, -100, 12.5)}, &Usage{begin.Add(15 * time.Second), 15 * time.Second, 5e8, 7}},
		"LastTwo":      {"only the last two points count", []Point{at(0, -100, 0), at(15, -100, 100), at(30, -100, 101.5)}, &Usage{begin.Add(30 * time.Second), 15 * time.Second, 1e8, 7}},
		"Idle":         {"no CPU time is a usage of 0", []Point{at(0, -100, 5), at(15, -100, 5)}, &Usage{begin.Add(15 * time.Second), 15 * time.Second, 0, 7}},
		"Fresh":        {"a container that is between 10 s and a resolution old has its own start as first point", []Point{at(12, 0, 6)}, &Usage{begin.Add(12 * time.Second), 12 * time.Second, 5e8, 7}},
		"TooFresh":     {"starting up says little of the usage", []Point{at(9, 0, 6)}, nil},
		"FirstSeenOld": {"a container older than a resolution has been used before", []Point{at(16, 0, 6)}, nil},
		"Restarted":    {"CPU time begins at 0 again", []Point{at(0, -100, 50), at(15, 7, 4)}, nil},
		"RestartedTen": {"the new container is old enough", []Point{at(0, -100, 50), at(15, 4, 11)}, &Usage{begin.Add(15 * time.Second), 11 * time.Second, 1e9, 7}},
		"SamePoint":    {"the kubelet has not measured again: the rate stays", []Point{at(0, -100, 5), at(15, -100, 12.5), at(15, -100, 12.5)}, &Usage{begin.Add(15 * time.Second), 15 * time.Second, 5e8, 7}},
		"Absurd":       {"a kubelet that claims more than a billion cores", []Point{{Time: begin}, {Time: begin.Add(time.Millisecond), CPU: 1e9}}, nil},
		"ClockBack":    {"there is no rate over negative time", []Point{at(15, -100, 5), at(0, -100, 6)}, nil},
		"CounterBack":  {"a rebooted node has a smaller counter, and no start", []Point{{Time: begin, CPU: 100}, {Time: begin.Add(resolution), CPU: 3}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var tr track
			for _, p := range row.points {
				tr = tr.advance(p, resolution)
			}
			got, ok := tr.usage()
			if ok != (row.want != nil) {
				t.Fatalf("%s: known is %v", row.reason, ok)
			}
			if row.want != nil {
				if diff := cmp.Diff(*row.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", row.reason, diff)
				}
			}
		})
	}
}

func TestStore(t *testing.T) {
	now := begin
	s := NewStore(resolution, 40*time.Second, func() time.Time { return now })
	pod := types.NamespacedName{Namespace: "ns", Name: "p"}
	put := func(node string, second int, cpu float64, containers ...string) {
		sample := Sample{Node: &Point{Time: begin.Add(time.Duration(second) * time.Second), CPU: cpu}, Pods: map[types.NamespacedName]map[string]Point{pod: {}}}
		for _, c := range containers {
			sample.Pods[pod][c] = at(second, -100, cpu)
		}
		s.Put(node, sample)
	}
	put("a", 0, 0, "one")
	put("b", 0, 0, "one")
	if nodes, containers := s.Known(); nodes != 0 || containers != 0 {
		t.Errorf("after one sample, %d nodes and %d containers are known", nodes, containers)
	}
	put("a", 15, 15, "one")
	if u, ok := s.Node("a"); !ok || u.CPU != 1e9 {
		t.Errorf("node a: %+v, %v", u, ok)
	}
	if u := s.Pod("a", pod); len(u) != 1 || u["one"].CPU != 1e9 {
		t.Errorf("the pod: %+v", u)
	}
	if u := s.Pod("b", pod); u != nil {
		t.Errorf("another node's sample counted for the pod: %+v", u)
	}
	put("a", 30, 30, "one", "two")
	if u := s.Pod("a", pod); u != nil {
		t.Errorf("a pod with a container that is not known yet: %+v", u)
	}
	put("a", 45, 45, "one", "two")
	if u := s.Pod("a", pod); len(u) != 2 {
		t.Errorf("both containers: %+v", u)
	}
	now = begin.Add(40 * time.Second)
	if _, ok := s.Node("a"); !ok {
		t.Error("a sample of maxAge is not shown")
	}
	now = now.Add(time.Second)
	if _, ok := s.Node("a"); ok || s.Pod("a", pod) != nil {
		t.Error("a sample older than maxAge is shown")
	}
	s.Forget("a")
	if nodes, _ := s.Known(); nodes != 0 {
		t.Errorf("after Forget, %d nodes are known", nodes)
	}
}
