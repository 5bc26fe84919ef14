package conformance

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

func templateLifecycle(t *testing.T, ctx context.Context, namespace string) {
	templates := admin.CoreV1().PodTemplates(namespace)
	ours := metav1.ListOptions{LabelSelector: "podtemplate-static=" + namespace}
	counts := func(want int) {
		t.Helper()
		list, err := admin.CoreV1().PodTemplates("").List(ctx, ours)
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("the list of all namespaces has %d templates, want %d", len(list.Items), want)
		}
	}
	_, err := templates.Create(ctx, podTemplate("template", map[string]string{"podtemplate-static": namespace}), metav1.CreateOptions{})
	check(t, err)
	counts(1)
	_, err = templates.Patch(ctx, "template", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"podtemplate":"patched"}}}`), metav1.PatchOptions{})
	check(t, err)
	got, err := templates.Get(ctx, "template", metav1.GetOptions{})
	check(t, err)
	if got.Labels["podtemplate"] != "patched" {
		t.Errorf("the labels are %v", got.Labels)
	}
	check(t, templates.Delete(ctx, "template", metav1.DeleteOptions{}))
	counts(0)
}

func templateReplace(t *testing.T, ctx context.Context, namespace string) {
	templates := admin.CoreV1().PodTemplates(namespace)
	_, err := templates.Create(ctx, podTemplate("template", nil), metav1.CreateOptions{})
	check(t, err)
	var updated *corev1.PodTemplate
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		got, err := templates.Get(ctx, "template", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got.Annotations = map[string]string{"updated": "true"}
		updated, err = templates.Update(ctx, got, metav1.UpdateOptions{})
		return err
	}))
	got, err := templates.Get(ctx, "template", metav1.GetOptions{})
	check(t, err)
	if updated.Annotations["updated"] != "true" || got.Annotations["updated"] != "true" {
		t.Errorf("the annotations are %v in the answer and %v afterwards", updated.Annotations, got.Annotations)
	}
}

func templateDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	templates := admin.CoreV1().PodTemplates(namespace)
	labels := map[string]string{"podtemplate-set": "true"}
	for _, name := range []string{"test-podtemplate-1", "test-podtemplate-2", "test-podtemplate-3"} {
		_, err := templates.Create(ctx, podTemplate(name, labels), metav1.CreateOptions{})
		check(t, err)
	}
	ours := metav1.ListOptions{LabelSelector: "podtemplate-set=true"}
	for _, want := range []int{3, 0} {
		list, err := templates.List(ctx, ours)
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("there are %d templates, want %d", len(list.Items), want)
		}
		check(t, templates.DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
	}
}

// newEvent returns an Event of events.k8s.io.
func newEvent(namespace, name string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"testevent-constant": namespace}},
		Regarding:  corev1.ObjectReference{Namespace: namespace}, EventTime: metav1.NowMicro(),
		Note: "This is " + name, Action: "Do", Reason: "Test", Type: corev1.EventTypeNormal,
		ReportingController: "test-controller", ReportingInstance: "test-node",
	}
}

func newEventLifecycle(t *testing.T, ctx context.Context, namespace string) {
	events := admin.EventsV1().Events(namespace)
	ours := metav1.ListOptions{LabelSelector: "testevent-constant=" + namespace}
	_, err := events.Create(ctx, newEvent(namespace, "event-test"), metav1.CreateOptions{})
	check(t, err)
	named := func(what string, list *eventsv1.EventList, err error) {
		t.Helper()
		check(t, err)
		if len(list.Items) != 1 || list.Items[0].Name != "event-test" {
			t.Errorf("%s: %d events", what, len(list.Items))
		}
	}
	list, err := admin.EventsV1().Events("").List(ctx, ours)
	named("all namespaces", list, err)
	list, err = events.List(ctx, ours)
	named("the namespace", list, err)
	list, err = events.List(ctx, metav1.ListOptions{FieldSelector: "reportingController=test-controller"})
	named("by reporting controller", list, err)
	old, err := admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=test-controller"})
	check(t, err)
	if len(old.Items) != 1 {
		t.Errorf("core/v1, by source: %d events", len(old.Items))
	}

	// The suite patches the series: the note of an event with an eventTime is immutable.
	_, err = events.Patch(ctx, "event-test", types.StrategicMergePatchType, []byte(`{"series":{"count":2,"lastObservedTime":"2017-09-19T13:49:11.000000Z"}}`), metav1.PatchOptions{})
	check(t, err)
	got, err := events.Get(ctx, "event-test", metav1.GetOptions{})
	check(t, err)
	if got.Series == nil || got.Series.Count != 2 {
		t.Errorf("the series is %+v", got.Series)
	}
	series := eventsv1.EventSeries{Count: 100, LastObservedTime: metav1.MicroTime{Time: metav1.Unix(1505828956, 0).Time}}
	check(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		got, err := events.Get(ctx, "event-test", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got.Series = &series
		_, err = events.Update(ctx, got, metav1.UpdateOptions{})
		return err
	}))
	got, err = events.Get(ctx, "event-test", metav1.GetOptions{})
	check(t, err)
	if got.Series == nil || got.Series.Count != series.Count || !got.Series.LastObservedTime.Equal(&series.LastObservedTime) {
		t.Errorf("the series is %+v", got.Series)
	}
	check(t, events.Delete(ctx, "event-test", metav1.DeleteOptions{}))
	for _, where := range []string{"", namespace} {
		list, err = admin.EventsV1().Events(where).List(ctx, ours)
		check(t, err)
		if len(list.Items) != 0 {
			t.Errorf("%d events are left", len(list.Items))
		}
	}
}

func newEventDeleteCollection(t *testing.T, ctx context.Context, namespace string) {
	events := admin.EventsV1().Events(namespace)
	ours := metav1.ListOptions{LabelSelector: "testevent-constant=" + namespace}
	for _, name := range []string{"test-event-1", "test-event-2", "test-event-3"} {
		_, err := events.Create(ctx, newEvent(namespace, name), metav1.CreateOptions{})
		check(t, err)
	}
	for _, want := range []int{3, 0} {
		list, err := events.List(ctx, ours)
		check(t, err)
		if len(list.Items) != want {
			t.Errorf("there are %d events, want %d", len(list.Items), want)
		}
		check(t, events.DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
	}
}
