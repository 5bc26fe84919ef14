package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
)

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name string, owner string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "here"}}
	if owner != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: owner, Name: "o", UID: "o", Controller: &yes}}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func tolerant(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Key: "plane", Operator: corev1.TolerationOpExists}}
}

func TestSort(t *testing.T) {
	tainted := node("plane", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "plane", Effect: corev1.TaintEffectNoSchedule}}
	})
	ssd := node("fast", func(n *corev1.Node) { n.Labels = map[string]string{"disk": "ssd"} })
	unready := node("unready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	cordoned := node("cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	for name, row := range map[string]struct {
		pod   *corev1.Pod
		nodes []*corev1.Node
		want  string
	}{
		"Others":            {pod("p", "ReplicaSet"), []*corev1.Node{ssd}, "go"},
		"NobodyMakesItAnew": {pod("p", ""), []*corev1.Node{ssd}, "lost"},
		"NobodyElse":        {pod("p", "ReplicaSet"), nil, "stay"},
		"OthersAreNotThere": {pod("p", "ReplicaSet"), []*corev1.Node{unready, cordoned}, "stay"},
		"NotTolerated":      {pod("p", "ReplicaSet"), []*corev1.Node{tainted}, "stay"},
		"Tolerated":         {pod("p", "ReplicaSet", tolerant), []*corev1.Node{tainted}, "go"},
		"OfEveryNode":       {pod("p", "DaemonSet"), []*corev1.Node{ssd}, "stay"},
		"OfTheNode":         {pod("p", "Node"), []*corev1.Node{ssd}, "stay"},
		"SelectsAnother":    {pod("p", "ReplicaSet", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }), []*corev1.Node{ssd}, "stay"},
		"SelectsIt":         {pod("p", "ReplicaSet", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }), []*corev1.Node{ssd}, "go"},
		"Ended":             {pod("p", "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), []*corev1.Node{ssd}, ""},
		"OfAnotherNode":     {pod("p", "", func(p *corev1.Pod) { p.Spec.NodeName = "fast" }), []*corev1.Node{ssd}, ""},
		"PreferredElsewhere": {pod("p", "ReplicaSet"), []*corev1.Node{node("x", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
		})}, "go"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Sort("here", []*corev1.Pod{row.pod}, append(row.nodes, node("here")))
			got := ""
			for name, list := range map[string][]*corev1.Pod{"go": s.Go, "lost": s.Lost, "stay": s.Stay} {
				if len(list) > 0 {
					got += name
				}
			}
			if got != row.want {
				t.Errorf("%q: want %q", got, row.want)
			}
		})
	}
}

func slice(service string, ready bool, pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(service, ready), Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: &corev1.ObjectReference{UID: types.UID(p)},
		})
	}
	return s
}

func TestNeeded(t *testing.T) {
	leaving := map[types.UID]bool{"leaving": true}
	for name, row := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		"NoService":            {nil, ""},
		"AnotherIsReady":       {[]*discoveryv1.EndpointSlice{slice("web", true, "p", "other")}, ""},
		"AnotherSlice":         {[]*discoveryv1.EndpointSlice{slice("web", true, "p"), slice("web", false, "other")}, "default/web"},
		"TheOtherLeaves":       {[]*discoveryv1.EndpointSlice{slice("web", true, "p", "leaving")}, "default/web"},
		"Alone":                {[]*discoveryv1.EndpointSlice{slice("web", true, "p")}, ""},
		"OneOfTwoServices":     {[]*discoveryv1.EndpointSlice{slice("web", true, "p", "other"), slice("db", true, "p"), slice("db", false, "x")}, "default/db"},
		"SomebodyElsesTrouble": {[]*discoveryv1.EndpointSlice{slice("db", false, "x", "y")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := needed(pod("p", "ReplicaSet"), leaving, row.slices); got != row.want {
				t.Errorf("%q: want %q", got, row.want)
			}
		})
	}
}

// If both pods of a Service are on the node, the second is evicted only when
// the replacement of the first is ready elsewhere. A pod that cannot run
// elsewhere stays.
func TestDrain(t *testing.T) {
	api := clienttest.New()
	cl := api.Client(t)
	var evicted []string
	pods := client.For[*corev1.Pod](cl).In("default")
	endpoints := client.For[*discoveryv1.EndpointSlice](cl).In("default")
	api.Before = func(r *http.Request) (*http.Response, error) {
		name, ok := strings.CutSuffix(r.URL.Path, "/eviction")
		if !ok {
			return nil, nil
		}
		name = name[strings.LastIndex(name, "/")+1:]
		evicted = append(evicted, name)
		if name == "b" {
			got, err := endpoints.Get(r.Context(), "web")
			if err != nil || len(got.Endpoints) != 2 || *got.Endpoints[1].Conditions.Ready != true || got.Endpoints[1].TargetRef.UID != "a2" {
				t.Errorf("b goes while the endpoints are %v (%v)", got, err)
			}
		}
		if err := pods.Delete(r.Context(), name, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range []*corev1.Node{node("here"), node("there")} {
		if _, err := client.For[*corev1.Node](cl).Create(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []*corev1.Pod{pod("a", "ReplicaSet"), pod("b", "ReplicaSet"), pod("own", "DaemonSet")} {
		if _, err := pods.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	web := slice("web", true, "a", "b")
	web.Name = "web"
	web, err := endpoints.Create(ctx, web)
	if err != nil {
		t.Fatal(err)
	}
	waited := false
	err = API{Cluster: cl, Own: cl}.Drain(ctx, "here", func(text string) {
		if !strings.Contains(text, "Service default/web has no other endpoint that is ready") || waited {
			return
		}
		waited = true // the replacement of the first becomes ready
		web.Endpoints = slice("web", true, "b", "a2").Endpoints
		if _, err := endpoints.Update(ctx, web); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, evicted); diff != "" || !waited {
		t.Errorf("evicted (-want +got):\n%s(b had to wait: %t)", diff, waited)
	}
	left, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "own" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Drain repeats evictions that a disruption budget refuses.
func TestDrainRetriesRefusedEvictions(t *testing.T) {
	api := clienttest.New()
	cl := api.Client(t)
	pods := client.For[*corev1.Pod](cl).In("default")
	refusals := 0
	api.Before = func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/p/eviction") {
			return nil, nil
		}
		if refusals < 3 {
			refusals++
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}
		if err := pods.Delete(r.Context(), "p", metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	for _, n := range []*corev1.Node{node("here"), node("there")} {
		if _, err := client.For[*corev1.Node](cl).Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pods.Create(t.Context(), pod("p", "ReplicaSet")); err != nil {
		t.Fatal(err)
	}
	if err := (API{Cluster: cl, Own: cl}).Drain(t.Context(), "here", func(string) {}); err != nil || refusals != 3 {
		t.Errorf("after %d refusals: %v", refusals, err)
	}
}

// Cordon sets and removes the annotation together with the cordon.
func TestCordon(t *testing.T) {
	cl := clienttest.New().Client(t)
	nodes := client.For[*corev1.Node](cl)
	if _, err := nodes.Create(t.Context(), node("here")); err != nil {
		t.Fatal(err)
	}
	api := API{Cluster: cl, Own: cl}
	for _, row := range []struct {
		cordoned bool
		note     string
	}{{true, "v2"}, {true, ""}, {false, ""}} {
		err := api.Cordon(t.Context(), "here", row.cordoned, "why", row.note)
		n, err2 := nodes.Get(t.Context(), "here")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if n.Spec.Unschedulable != row.cordoned || n.Annotations["why"] != row.note || row.note == "" && len(n.Annotations) > 0 {
			t.Errorf("%+v: %t, %v", row, n.Spec.Unschedulable, n.Annotations)
		}
	}
}
