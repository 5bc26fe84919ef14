package history

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
)

// TestTakenNames makes a revision whose name is taken. The informer shows nothing, as after a
// crash.
func TestTakenNames(t *testing.T) {
	owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "owner"}}
	source := Source{Template: templateOf("v1"), Selector: labels.SelectorFromSet(map[string]string{"app": "web"})}
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	stranger := owner.DeepCopy()
	stranger.UID = "stranger"
	for name, test := range map[string]struct {
		change     func(*appsv1.ControllerRevision)
		collisions int32
		wait       bool // until the informer shows the revision
	}{
		"free":                       {change: func(r *appsv1.ControllerRevision) { r.Name = "other" }},
		"of another owner":           {collisions: 1, change: func(r *appsv1.ControllerRevision) { r.OwnerReferences[0] = ownership.Reference(stranger, kind) }},
		"of another template":        {collisions: 1, change: func(r *appsv1.ControllerRevision) { r.Data.Raw = patch(templateOf("v2")) }},
		"made before the crash":      {wait: true, change: func(*appsv1.ControllerRevision) {}},
		"an orphan that matches":     {wait: true, change: func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil }},
		"an orphan that matches not": {collisions: 1, change: func(r *appsv1.ControllerRevision) { r.OwnerReferences, r.Labels = nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			api := clienttest.New().Client(t)
			c := controller.Context{Client: api, Informers: informers.New(api, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler), Metrics: loop.NewMetrics(prometheus.NewRegistry())}
			l := c.NewLoop("test", 0, func(context.Context, loop.Key) (loop.Result, error) { return loop.Done, nil })
			taken := revisionOf(owner, source, HashLabel, 1)
			taken.OwnerReferences = []metav1.OwnerReference{ownership.Reference(owner, kind)}
			test.change(taken)
			if _, err := client.For[*appsv1.ControllerRevision](api).Create(t.Context(), taken); err != nil {
				t.Fatal(err)
			}
			all, collisions, err := New[*appsv1.StatefulSet](c, l, HashLabel).Sync(t.Context(), owner, source)
			if test.wait {
				if err == nil {
					t.Error("the revision is used before the informer shows it")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := int32(0)
			if collisions != nil {
				got = *collisions
			}
			if got != test.collisions || len(all) != 1 || !holds(all[0], source.Template) || !metav1.IsControlledBy(all[0], owner) {
				t.Errorf("%d collisions, want %d, and revisions %+v", got, test.collisions, all)
			}
		})
	}
}
