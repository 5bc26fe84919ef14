package apiserver_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// One storage serves Events in two API groups.
func TestEventsInBothVersions(t *testing.T) {
	w := start(t)
	const v1, core = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
	event := func(name, more string) string {
		return `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"` + name + `"},"eventTime":"2026-01-02T03:04:05.000006Z",
			"reportingController":"example.com/c","reportingInstance":"i","action":"Do","reason":"Why","type":"Normal",
			"regarding":{"kind":"Pod","namespace":"default","name":"p"}` + more + `}`
	}
	lines := w.watchLines(t.Context(), core+"?watch=1")
	newer := w.watchLines(t.Context(), v1+"?watch=1")
	made := must[eventsv1.Event](w, 201, "POST", v1, jsonType, event("a", `,"note":"text"`))
	if made.Note != "text" || made.Regarding.Name != "p" || made.APIVersion != "events.k8s.io/v1" {
		t.Errorf("created %+v", made)
	}
	old := must[corev1.Event](w, 200, "GET", core+"/a", "", "")
	if old.Message != "text" || old.InvolvedObject.Name != "p" || old.APIVersion != "v1" || old.UID != made.UID {
		t.Errorf("as core/v1 %+v", old)
	}
	if line := <-lines; !strings.Contains(line, `"message":"text"`) || !strings.Contains(line, `"apiVersion":"v1"`) {
		t.Errorf("a watch of core/v1: %s", line)
	}
	if line := <-newer; !strings.Contains(line, `"note":"text"`) || !strings.Contains(line, `"apiVersion":"events.k8s.io/v1"`) {
		t.Errorf("a watch of events.k8s.io/v1: %s", line)
	}
	must[corev1.Event](w, 200, "PATCH", core+"/a", mergeType, `{"message":"other"}`)
	if list := must[eventsv1.EventList](w, 200, "GET", v1, "", ""); len(list.Items) != 1 || list.Items[0].Note != "other" || list.APIVersion != "events.k8s.io/v1" {
		t.Errorf("list %+v", list)
	}
	if line := <-newer; !strings.Contains(line, `"MODIFIED"`) || !strings.Contains(line, `"note":"other"`) {
		t.Errorf("a watch of events.k8s.io/v1: %s", line)
	}
	rec := w.do("GET", v1+"/a", "", "", "Accept", protoType)
	decoded := &eventsv1.Event{}
	_, bare, err := scheme.OpenProto(rec.Body.Bytes())
	if err == nil {
		err = decoded.Unmarshal(bare)
	}
	if err != nil || decoded.Note != "other" {
		t.Errorf("as protobuf: %v %+v", err, decoded)
	}
	series := `{"series":{"count":2,"lastObservedTime":"2026-01-02T03:04:06.000000Z"}}`
	if got := must[eventsv1.Event](w, 200, "PATCH", v1+"/a", mergeType, series); got.Series == nil || got.Series.Count != 2 {
		t.Errorf("patched %+v", got)
	}
	must[metav1.Status](w, 422, "PATCH", v1+"/a", mergeType, `{"note":"x"}`)
	must[metav1.Status](w, 422, "POST", v1, jsonType, event("b", `,"deprecatedCount":1`))
	must[metav1.Status](w, 422, "POST", v1, jsonType, `{"metadata":{"name":"b"},"regarding":{"namespace":"default"},"type":"Normal"}`)
	applied := must[eventsv1.Event](w, 201, "PATCH", v1+"/c?fieldManager=one", "application/apply-patch+yaml", event("c", ""))
	if len(applied.ManagedFields) != 1 || applied.ManagedFields[0].APIVersion != "events.k8s.io/v1" {
		t.Errorf("applied %+v", applied.ManagedFields)
	}
	table := must[metav1.Table](w, 200, "GET", v1, "", "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if len(table.Rows) != 2 || table.ColumnDefinitions[0].Name != "Last Seen" {
		t.Errorf("table %+v", table)
	}
	for path, want := range map[string]int{
		v1 + "?fieldSelector=reportingController=example.com/c,regarding.name=p": 2, v1 + "?fieldSelector=metadata.name=a,type!=Warning": 1, v1 + "?fieldSelector=regarding.name=q": 0,
		core + "?fieldSelector=source=example.com/c,involvedObject.name=p": 2,
	} {
		if list := must[metav1.PartialObjectMetadataList](w, 200, "GET", path, "", ""); len(list.Items) != want {
			t.Errorf("%s: %d events, want %d", path, len(list.Items), want)
		}
	}
	for _, path := range []string{v1 + "?fieldSelector=involvedObject.name=p", core + "?fieldSelector=reportingController=example.com/c"} {
		if s := must[metav1.Status](w, 400, "GET", path, "", ""); !strings.HasPrefix(s.Message, "field label not supported: ") {
			t.Errorf("%s: %s", path, s.Message)
		}
	}
}
