package ownership_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
)

// changes are those that a test makes.
type changes []func(old, new *corev1.Pod)

func (c *changes) OnChange(f func(old, new *corev1.Pod)) { *c = append(*c, f) }

func TestChangesWakeOwners(t *testing.T) {
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "a"}}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	owned := func(by string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: by, Controller: new(true)}}
		}
	}
	running := func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	other := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "b"} }
	bare := func(p *corev1.Pod) { p.Labels = nil }
	tests := map[string]struct {
		reason   string
		old, new *corev1.Pod
		want     string
	}{
		"New":            {"a set may adopt it", nil, pod(), "a any"},
		"NewElsewhere":   {"sets of other namespaces cannot", nil, pod(func(p *corev1.Pod) { p.Namespace = "other" }), ""},
		"NewUnlabelled":  {"a pod without labels is not adopted", nil, pod(bare), ""},
		"NewOwned":       {"it has a controller", nil, pod(owned("x")), "x"},
		"Status":         {"the status decides about no adoption", pod(), pod(running), ""},
		"Labels":         {"another set may adopt it", pod(), pod(other), "any b"},
		"OwnedStatus":    {"its controller counts it", pod(owned("x")), pod(owned("x"), running), "x"},
		"Adopted":        {"its controller has it now", pod(), pod(owned("x")), "x"},
		"Released":       {"its controller lost it, and a set may adopt it", pod(owned("x")), pod(), "a any x"},
		"Deleted":        {"a pod that is being deleted is not adopted", pod(), pod(deleted), ""},
		"DeletedAtStart": {"nor when it is seen for the first time", nil, pod(deleted), ""},
		"Gone":           {"a set may have waited for its name", pod(deleted), nil, "a any"},
		"OwnedGone":      {"its controller replaces it", pod(owned("x")), nil, "x"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := woken(t, tc.old, tc.new); got != tc.want {
				t.Errorf("%s: woke %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// woken returns the daemon sets that a change of a pod enqueues.
func woken(t *testing.T, old, new *corev1.Pod) (names string) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var woken []string
		l := loop.New(loop.Config{
			Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: loop.NewMetrics(prometheus.NewRegistry()),
			Reconcile: func(_ context.Context, key loop.Key) (loop.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				woken = append(woken, key.Name)
				return loop.Done, nil
			},
		})
		var pods changes
		ownership.WakeOwners(l, &pods, ownership.Owners[*appsv1.DaemonSet]{
			Kind: "DaemonSet", In: daemonSets, Selector: func(ds *appsv1.DaemonSet) *metav1.LabelSelector { return ds.Spec.Selector },
		})
		for _, f := range pods {
			f(old, new)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
		slices.Sort(woken)
		names = strings.Join(woken, " ")
	})
	return names
}

// daemonSets returns those of the namespace ns: one for each app, and one for any.
func daemonSets(namespace string) (sets []*appsv1.DaemonSet) {
	for _, name := range []string{"a", "b", "any"} {
		values := []string{name}
		if name == "any" {
			values = []string{"a", "b"}
		}
		sets = append(sets, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values},
			}}},
		})
	}
	return slices.DeleteFunc(sets, func(ds *appsv1.DaemonSet) bool { return ds.Namespace != namespace })
}
