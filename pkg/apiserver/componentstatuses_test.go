package apiserver_test

//lint:file-ignore SA1019 ComponentStatuses are deprecated, and served.

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

const components = "/api/v1/componentstatuses"

func withComponents(list ...registry.Component) func(*apiserver.Config) {
	return func(c *apiserver.Config) {
		c.Kinds = registry.Kinds(c.Scheme, registry.Config{
			Store: c.Store, ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), NodePorts: registry.PortRange{First: 30000, Last: 32767},
			Now: time.Now, Components: list,
		})
	}
}

func says(message string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return message, err }
}

func startWithComponents(t *testing.T) *world {
	return start(t, withComponents(
		registry.Component{Name: "scheduler", Probe: says("ok", nil)},
		registry.Component{Name: "etcd-0", Probe: says("", errors.New("no leader"))},
	))
}

func componentStatus(name string, status corev1.ConditionStatus, message string) corev1.ComponentStatus {
	return corev1.ComponentStatus{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Conditions: []corev1.ComponentCondition{{Type: corev1.ComponentHealthy, Status: status, Message: message}},
	}
}

func TestComponentStatusesAreProbed(t *testing.T) {
	w := startWithComponents(t)
	scheduler, store := componentStatus("scheduler", corev1.ConditionTrue, "ok"), componentStatus("etcd-0", corev1.ConditionFalse, "no leader")

	list := must[corev1.ComponentStatusList](w, 200, "GET", components, "", "")
	want := &corev1.ComponentStatusList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ComponentStatusList"},
		Items:    []corev1.ComponentStatus{store, scheduler},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	list = must[corev1.ComponentStatusList](w, 200, "GET", components+"?fieldSelector=metadata.name%3Dscheduler", "", "")
	if diff := cmp.Diff([]corev1.ComponentStatus{scheduler}, list.Items); diff != "" {
		t.Errorf("selected (-want +got):\n%s", diff)
	}
	one := must[corev1.ComponentStatus](w, 200, "GET", components+"/etcd-0", "", "")
	if one.TypeMeta = (metav1.TypeMeta{}); !cmp.Equal(store, *one) {
		t.Errorf("get (-want +got):\n%s", cmp.Diff(store, *one))
	}
	rec := w.do("GET", components, "", "", "Accept", protoType)
	obj, _, err := scheme.New().Decode(rec.Body.Bytes(), protoType, nil)
	if got, ok := obj.(*corev1.ComponentStatusList); err != nil || !ok || len(got.Items) != 2 {
		t.Errorf("in protobuf: %v %v", obj, err)
	}
	if got := rec.Header().Get("Warning"); got != `299 - "v1 ComponentStatus is deprecated in v1.19+"` {
		t.Errorf("the warning is %q", got)
	}
}

func TestComponentStatusesAsTable(t *testing.T) {
	w := startWithComponents(t)
	table := must[metav1.Table](w, 200, "GET", components, "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var got []string
	for _, c := range table.ColumnDefinitions {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"Name", "Status", "Message", "Error"}, got); diff != "" {
		t.Error(diff)
	}
	want := [][]any{{"etcd-0", "Unhealthy", "no leader", ""}, {"scheduler", "Healthy", "ok", ""}}
	for i, row := range table.Rows {
		if diff := cmp.Diff(want[i], row.Cells); diff != "" {
			t.Error(diff)
		}
	}
	rec := w.do("GET", components+"/scheduler", "", "", "Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"name":"scheduler"`) {
		t.Errorf("metadata: %d %s", rec.Code, rec.Body)
	}
}

func TestComponentStatusesAreReadOnly(t *testing.T) {
	w := startWithComponents(t)
	for _, call := range [][2]string{
		{"POST", components}, {"DELETE", components}, {"DELETE", components + "/etcd-0"}, {"PUT", components + "/etcd-0"}, {"GET", components + "?watch=true"},
	} {
		if rec := w.do(call[0], call[1], jsonType, "{}"); rec.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d %s", call[0], call[1], rec.Code, rec.Body)
		}
	}
	if rec := w.do("GET", components+"/none", "", ""); rec.Code != http.StatusNotFound {
		t.Errorf("an unknown component: %d %s", rec.Code, rec.Body)
	}
	list := must[metav1.APIResourceList](w, 200, "GET", "/api/v1", "", "")
	for _, r := range list.APIResources {
		if r.Name == "componentstatuses" {
			want := metav1.APIResource{Name: "componentstatuses", SingularName: "componentstatus", Kind: "ComponentStatus", ShortNames: []string{"cs"}, Verbs: metav1.Verbs{"get", "list"}}
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("discovery (-want +got):\n%s", diff)
			}
			return
		}
	}
	t.Error("discovery has no componentstatuses")
}

// The real probe follows no redirect, and reads what the component says.
func TestHealthAt(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/sick", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	mux.Handle("/away", http.RedirectHandler("/ok", http.StatusFound))
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	for path, want := range map[string]string{"/ok": "", "/sick": "HTTP probe failed with statuscode: 500", "/away": "HTTP probe failed with statuscode: 302"} {
		message, err := apiserver.HealthAt(server.URL + path)(t.Context())
		if want == "" && (message != "ok" || err != nil) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %q, %v", path, message, err)
		}
	}
	if _, err := apiserver.HealthAt("https://127.0.0.1:1/healthz")(t.Context()); err == nil {
		t.Error("a component that does not listen is healthy")
	}
}
