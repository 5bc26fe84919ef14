package scheduler_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler"
	"podium/pkg/scheduler/extender"
)

// told is what an extender is asked, with all verbs.
type told struct {
	Pod                   *corev1.Pod
	NodeNames             []string
	Nodes                 *corev1.NodeList
	NodeNameToMetaVictims map[string]struct{ Pods []struct{ UID string } }
	PodName, Node         string
}

// extenders is the transport of the requests to extenders. Verbs are answered by functions;
// without one, the request fails.
type extenders struct {
	t       *testing.T
	answers map[string]func(*told) any

	mu  sync.Mutex
	log []string
}

func (e *extenders) RoundTrip(r *http.Request) (*http.Response, error) {
	in := &told{}
	if err := json.NewDecoder(r.Body).Decode(in); err != nil {
		e.t.Error(err)
	}
	name := in.PodName
	if in.Pod != nil {
		name = in.Pod.Name
	}
	verb := strings.TrimPrefix(r.URL.Path, "/")
	e.mu.Lock()
	e.log = append(e.log, verb+" "+name)
	answer := e.answers[verb]
	e.mu.Unlock()
	if answer == nil {
		return nil, fmt.Errorf("nothing answers %s", verb)
	}
	out, err := json.Marshal(answer(in))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(out)))}, err
}

func (e *extenders) asked() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.log, ", ")
}

type answer = map[string]any

// only leaves one node of those that are asked for.
func only(node, why string) func(*told) any {
	return func(in *told) any {
		failed := map[string]string{}
		for _, n := range in.NodeNames {
			if n != node {
				failed[n] = why
			}
		}
		if !slices.Contains(in.NodeNames, node) {
			return answer{"NodeNames": []string{}, "FailedNodes": failed}
		}
		return answer{"NodeNames": []string{node}, "FailedNodes": failed}
	}
}

func extended(t *testing.T, answers map[string]func(*told) any, configs ...extender.Config) (scheduler.Config, *extenders) {
	e := &extenders{t: t, answers: answers}
	for i := range configs {
		configs[i].URLPrefix, configs[i].NodeCacheCapable = "http://extender", true
	}
	if err := extender.Validate(configs); err != nil {
		t.Fatal(err)
	}
	return scheduler.Config{Extenders: configs, ExtenderTransport: e}, e
}

// TestExtenders runs pods through the extension points of extenders.
func TestExtenders(t *testing.T) {
	best := func(in *told) any { return []answer{{"Host": "c", "Score": 10}, {"Host": "b", "Score": 3}} }
	for name, tc := range map[string]struct {
		reason  string
		configs []extender.Config
		answers map[string]func(*told) any
		want    string // the pods, then the requests
	}{
		"Filter": {
			"only the nodes that the extender leaves are used",
			[]extender.Config{{FilterVerb: "filter"}}, map[string]func(*told) any{"filter": only("b", "full")},
			"p:b; filter p",
		},
		"Chain": {
			"extenders are asked one after the other about what is left; one node needs no scores",
			[]extender.Config{{FilterVerb: "first"}, {FilterVerb: "second", PrioritizeVerb: "rank", Weight: 1}},
			map[string]func(*told) any{
				"first": func(*told) any { return answer{"NodeNames": []string{"a", "b"}, "FailedNodes": answer{"c": "no"}} },
				"second": func(in *told) any {
					if !slices.Equal(in.NodeNames, []string{"a", "b"}) {
						t.Errorf("asked about %v", in.NodeNames)
					}
					return only("b", "no")(in)
				},
			},
			"p:b; first p, second p",
		},
		"Prioritize": {
			"scores of extenders decide among nodes that are equal otherwise",
			[]extender.Config{{PrioritizeVerb: "rank", Weight: 1}}, map[string]func(*told) any{"rank": best}, "p:c; rank p",
		},
		"PrioritizeFails": {
			"scores that do not come are ignored",
			[]extender.Config{{PrioritizeVerb: "rank", Weight: 1}}, nil, "p:a; rank p",
		},
		"Ignorable": {
			"pods are scheduled without an ignorable extender that fails",
			[]extender.Config{{FilterVerb: "filter", Ignorable: true}}, nil, "p:a; filter p",
		},
		"NotInterested": {
			"an extender with managed resources is not asked about other pods",
			[]extender.Config{{FilterVerb: "filter", BindVerb: "bind", ManagedResources: []extender.ManagedResource{{Name: "example.com/gpu"}}}}, nil, "p:a; ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for _, n := range []string{"a", "b", "c"} {
					w.node(node(n, "2", "4Gi"))
				}
				cfg, e := extended(t, tc.answers, tc.configs...)
				stop := w.start(cfg)
				w.create(pod("p", "1"))
				settle()
				if got := w.where() + "; " + e.asked(); got != tc.want {
					t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
				}
				stop()
			})
		})
	}
}

// An extender sees all of a pod: what no plugin reads may matter to it.
func TestExtendersSeeWholePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		cfg, _ := extended(t, map[string]func(*told) any{"filter": func(in *told) any {
			if in.Pod.Annotations["gpu"] != "half" || in.Pod.Spec.Containers[0].Image != "i" || len(in.Pod.Spec.Containers[0].Env) != 1 {
				t.Errorf("the extender sees %+v", in.Pod)
			}
			return only("a", "")(in)
		}}, extender.Config{FilterVerb: "filter"})
		stop := w.start(cfg)
		p := pod("p", "1")
		p.Annotations = map[string]string{"gpu": "half"}
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Env = "i", []corev1.EnvVar{{Name: "A", Value: "b"}}
		w.create(p)
		settle()
		if got := w.where(); got != "p:a" {
			t.Error(got)
		}
		stop()
	})
}

// A failure of an extender that is not ignorable is an error, and is tried again.
func TestFailuresOfExtendersAreReportedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		cfg, e := extended(t, map[string]func(*told) any{"filter": func(*told) any { return answer{"Error": "no license"} }}, extender.Config{FilterVerb: "filter"})
		stop := w.start(cfg)
		w.create(pod("p", "1"))
		settle()
		c := w.get("p").Status.Conditions
		if len(c) != 1 || c[0].Reason != "SchedulerError" || c[0].Message != "extender http://extender: filter: no license" {
			t.Errorf("%+v", c)
		}
		e.mu.Lock()
		e.answers = map[string]func(*told) any{"filter": only("a", "")}
		e.mu.Unlock()
		settle()
		if got := w.where(); got != "p:a" {
			t.Error(got)
		}
		stop()
	})
}

// The reasons of extenders are in the pod's status, and any event wakes the pod.
func TestReasonsOfExtendersAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		w.node(node("b", "500m", "4Gi"))
		cfg, _ := extended(t, map[string]func(*told) any{"filter": only("c", "no GPU is free")}, extender.Config{FilterVerb: "filter"})
		stop := w.start(cfg)
		w.create(pod("p", "1"))
		settle()
		c := w.get("p").Status.Conditions
		const want = "0/2 nodes are available: 1 Insufficient cpu, 1 no GPU is free. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling. a: no GPU is free; b: Insufficient cpu."
		if len(c) != 1 || c[0].Reason != "Unschedulable" || c[0].Message != want {
			t.Errorf("%+v", c)
		}
		w.node(node("c", "2", "4Gi"))
		settle()
		if got := w.where(); got != "p:c" {
			t.Error(got)
		}
		stop()
	})
}

// Resources that an extender manages alone are no matter of NodeResourcesFit, and one extender
// binds the pods that use them.
func TestExtendersBindPodsOfTheirResources(t *testing.T) {
	for name, tc := range map[string]struct {
		bind      func(w *world) func(*told) any
		ignorable bool
		want      string
	}{
		"Binds": {func(w *world) func(*told) any {
			return func(in *told) any { w.bind(in.PodName, in.Node); return answer{} }
		}, false, "gpu:a plain:a; bind gpu; bindings 1"},
		"Refuses": {func(*world) func(*told) any {
			return func(*told) any { return answer{"Error": "not today"} }
		}, true, "gpu:a plain:a; bind gpu; bindings 2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.node(node("a", "4", "4Gi"))
				cfg, e := extended(t, map[string]func(*told) any{"bind": tc.bind(w)}, extender.Config{
					BindVerb: "bind", Ignorable: tc.ignorable, ManagedResources: []extender.ManagedResource{{Name: "example.com/gpu", IgnoredByScheduler: true}},
				})
				stop := w.start(cfg)
				gpu := pod("gpu", "1")
				gpu.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
				w.create(gpu)
				w.create(pod("plain", "1"))
				settle()
				if got := fmt.Sprintf("%s; %s; bindings %d", w.where(), e.asked(), w.count("/binding")); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
				stop()
			})
		})
	}
}

// bind puts a pod on a node, as an extender does.
func (w *world) bind(name, node string) {
	p := w.get(name)
	p.Spec.NodeName = node
	if _, err := w.pods.Update(w.t.Context(), p); err != nil {
		w.t.Error(err)
	}
}

// Extenders restrict preemption, and exclude nodes from it.
func TestExtendersRestrictPreemption(t *testing.T) {
	all := func(in *told) any { return answer{"NodeNames": in.NodeNames} }
	victims := func(nodes ...string) func(*told) any {
		return func(in *told) any {
			maps.DeleteFunc(in.NodeNameToMetaVictims, func(n string, _ struct{ Pods []struct{ UID string } }) bool { return !slices.Contains(nodes, n) })
			return answer{"NodeNameToMetaVictims": in.NodeNameToMetaVictims}
		}
	}
	for name, tc := range map[string]struct {
		reason  string
		answers map[string]func(*told) any
		want    string // the nominated node and the requests
	}{
		"First":  {"the least harm without a restriction", map[string]func(*told) any{"filter": all, "preempt": victims("a", "b")}, "a; preempt vip"},
		"Second": {"a node that the extender removes is not used", map[string]func(*told) any{"filter": all, "preempt": victims("b")}, "b; preempt vip"},
		"None":   {"no node is left", map[string]func(*told) any{"filter": all, "preempt": victims()}, "; preempt vip"},
		"Fails":  {"an error evicts nothing", map[string]func(*told) any{"filter": all}, "; preempt vip"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i, n := range []string{"a", "b"} {
					w.node(node(n, "1", "4Gi"))
					low := important("low-"+n, "1", int32(i))
					low.Spec.NodeName = n
					w.create(low)
				}
				cfg, e := extended(t, tc.answers, extender.Config{FilterVerb: "filter", PreemptVerb: "preempt"})
				stop := w.start(cfg)
				w.create(important("vip", "1", 1000))
				time.Sleep(50 * time.Millisecond)
				if got := w.evicted() + "; " + firstOf(e.asked()); got != tc.want {
					t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
				}
				stop()
			})
		})
	}
}

func firstOf(log string) string {
	first, _, _ := strings.Cut(log, ",")
	return first
}

// evicted returns the nodes whose pods were evicted.
func (w *world) evicted() string {
	list, err := w.pods.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	gone := map[types.UID]string{"low-a": "a", "low-b": "b"}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			delete(gone, p.UID)
		}
	}
	return strings.Join(slices.Sorted(maps.Values(gone)), " ")
}

// Where preemption cannot help, says an extender, nothing is evicted.
func TestNothingIsEvictedWhereExtendersSayItDoesNotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		low := important("low-a", "1", 1)
		low.Spec.NodeName = "a"
		w.create(low)
		cfg, _ := extended(t, map[string]func(*told) any{"filter": func(in *told) any {
			return answer{"NodeNames": []string{}, "FailedAndUnresolvableNodes": answer{"a": "no GPU"}}
		}}, extender.Config{FilterVerb: "filter"})
		stop := w.start(cfg)
		w.create(important("vip", "1", 1000))
		settle()
		const want = "0/1 nodes are available: 1 no GPU. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling. a: no GPU."
		if c := w.get("vip").Status.Conditions; len(c) != 1 || c[0].Message != want || w.get("low-a").DeletionTimestamp != nil {
			t.Errorf("%+v", c)
		}
		stop()
	})
}

// While an extender is slow, the informers go on, and a node that has vanished or a pod that
// was deleted meanwhile is not used.
func TestTheClusterChangesWhileExtendersAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "2", "4Gi"))
		w.node(node("b", "2", "4Gi"))
		cfg, _ := extended(t, map[string]func(*told) any{"filter": func(in *told) any {
			time.Sleep(time.Second)
			return answer{"NodeNames": in.NodeNames}
		}}, extender.Config{FilterVerb: "filter"})
		stop := w.start(cfg)
		settle()
		w.create(pod("p", "1"))
		time.Sleep(500 * time.Millisecond)
		if err := w.nodes.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		w.create(pod("gone", "1"))
		time.Sleep(500 * time.Millisecond)
		if err := w.pods.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := w.where(); got != "p:b" || w.count("/binding") != 1 {
			t.Errorf("%s, %d bindings", got, w.count("/binding"))
		}
		stop()
	})
}
