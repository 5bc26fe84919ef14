package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// owned renders managed fields, a line a manager.
func owned(obj metav1.Object) string {
	var out []string
	for _, m := range obj.GetManagedFields() {
		name := m.Manager + " " + string(m.Operation) + " " + m.APIVersion
		if m.Subresource != "" {
			name += " " + m.Subresource
		}
		out = append(out, name+" "+string(m.FieldsV1.Raw))
	}
	return strings.Join(out, "\n")
}

func wantOwned(t *testing.T, obj metav1.Object, want ...string) {
	t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), owned(obj)); diff != "" {
		t.Error(diff)
	}
}

// Every write records its manager: the fieldManager, or the User-Agent up to its first
// slash. What the server adds has no manager.
func TestManagersAreTrackedFromCreationOn(t *testing.T) {
	w := start(t)
	const path = deploys + "/web"
	made := must[appsv1.Deployment](w, 201, "POST", deploys, jsonType, `{"metadata":{"name":"web","labels":{"a":"b"}},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"replicas":7}}`, "User-Agent", "kubectl/v1.36 (linux)")
	const spec = `"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},` +
		`"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},` +
		`"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}`
	wantOwned(t, made, `kubectl Update apps/v1 {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{`+spec+`}`)
	if e := made.ManagedFields[0]; e.FieldsType != "FieldsV1" || e.Time == nil || e.Time.After(time.Now()) || e.Time.Before(&made.CreationTimestamp) {
		t.Errorf("%+v", e)
	}

	status := `{"status":{"conditions":[{"type":"Available","status":"True"}],"replicas":1},"metadata":{"labels":{"ignored":"x"}}}`
	must[appsv1.Deployment](w, 200, "PATCH", path+"/status?fieldManager=controller", smpType, status)
	must[any](w, 200, "PUT", path+"/scale?fieldManager=scaler", jsonType, `{"metadata":{"name":"web"},"spec":{"replicas":3}}`)
	must[any](w, 200, "PATCH", path, mergeType, `{"metadata":{"annotations":{"x":"y"}}}`, "User-Agent", "editor")
	last := must[appsv1.Deployment](w, 200, "PATCH", path, jsonPatch, `[{"op":"add","path":"/metadata/annotations/z","value":"y"}]`, "User-Agent", "editor")
	for _, want := range []string{
		`controller Update apps/v1 status {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Available\"}":{".":{},"f:lastTransitionTime":{},"f:lastUpdateTime":{},"f:status":{},"f:type":{}}},"f:replicas":{}}}`,
		`scaler Update apps/v1 scale {"f:spec":{"f:replicas":{}}}`,
		`editor Update apps/v1 {"f:metadata":{"f:annotations":{".":{},"f:x":{},"f:z":{}}}}`,
		`kubectl Update apps/v1 {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{` + strings.Replace(spec, `"f:replicas":{},`, "", 1) + `}`,
	} {
		if !strings.Contains(owned(last)+"\n", want+"\n") {
			t.Errorf("no %s in\n%s", want, owned(last))
		}
	}
	if len(last.ManagedFields) != 4 {
		t.Error(owned(last))
	}

	svc := must[corev1.Service](w, 201, "POST", "/api/v1/namespaces/default/services?fieldManager=m", jsonType, `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"selector":{"a":"b"}}}`)
	wantOwned(t, svc, `m Update v1 {"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},`+
		`"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`)
	role := must[rbacv1.ClusterRole](w, 200, "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user", "", "")
	if managers(role) != "kube-apiserver:Update" {
		t.Errorf("the server's own object: %s", owned(role))
	}
}

// A client that writes protobuf sees the same as one that writes JSON.
func TestManagersOfProtobufClients(t *testing.T) {
	w := start(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("x")}}
	send := func(method, path string, code int) {
		t.Helper()
		data, err := scheme.New().Encode(lease, scheme.Protobuf)
		if err != nil {
			t.Fatal(err)
		}
		lease = must[coordinationv1.Lease](w, code, method, path+"?fieldManager=kubelet", protoType, string(data), "Accept", jsonType)
	}
	send("POST", benchLeases, 201)
	wantOwned(t, lease, `kubelet Update coordination.k8s.io/v1 {"f:spec":{"f:holderIdentity":{}}}`)
	now := metav1.NowMicro()
	lease.Spec.RenewTime = &now
	send("PUT", benchLeases+"/node", 200)
	wantOwned(t, lease, `kubelet Update coordination.k8s.io/v1 {"f:spec":{"f:holderIdentity":{},"f:renewTime":{}}}`)
}

// A write that changes nothing leaves the managers, their times and the
// resourceVersion, whatever managed fields it carries.
func TestNoOpLeavesManagersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		made := must[corev1.ConfigMap](w, 201, "POST", cms+"?fieldManager=a", jsonType, configMap("x"))
		time.Sleep(time.Minute)
		later := made.DeepCopy()
		later.ManagedFields[0].Time = &metav1.Time{Time: time.Now()}
		for _, tc := range []struct{ method, contentType, body string }{
			{"PUT", jsonType, configMap("x")},
			{"PUT", jsonType, encode(t, made)},
			{"PUT", jsonType, encode(t, later)},
			{"PATCH", mergeType, `{"data":{"a":"1"}}`},
			{"PATCH", smpType, `{"data":{"a":"1"}}`},
			{"PATCH", jsonPatch, `[{"op":"replace","path":"/data/a","value":"1"}]`},
			{"PATCH", mergeType, `{"metadata":{"managedFields":null}}`},
		} {
			got := must[corev1.ConfigMap](w, 200, tc.method, cms+"/x?fieldManager=b", tc.contentType, tc.body)
			if diff := cmp.Diff(made, got); diff != "" {
				t.Errorf("%s %s: %s", tc.method, tc.body, diff)
			}
		}
		changed := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x?fieldManager=a", mergeType, `{"data":{"a":"2"}}`)
		if changed.ManagedFields[0].Time.Sub(made.ManagedFields[0].Time.Time) != time.Minute {
			t.Errorf("the time of a change: %v", changed.ManagedFields[0].Time)
		}
		applied := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x?fieldManager=c", applyType, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"2"}}`)
		time.Sleep(time.Minute)
		again := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x?fieldManager=c", applyType, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"2"}}`)
		if diff := cmp.Diff(applied, again); diff != "" {
			t.Errorf("applied twice: %s", diff)
		}
	})
}

// Conflicts, transfer of ownership and force between a client that creates and one
// that applies.
func TestApplyMeetsACreator(t *testing.T) {
	w := start(t)
	must[corev1.ConfigMap](w, 201, "POST", cms+"?fieldManager=creator", jsonType, `{"metadata":{"name":"x"},"data":{"a":"1","b":"1"}}`)
	apply := func(data string) string { return `{"kind":"ConfigMap","apiVersion":"v1","data":` + data + `}` }
	const path = cms + "/x?fieldManager="
	conflict := must[metav1.Status](w, 409, "PATCH", path+"applier", applyType, apply(`{"a":"2"}`))
	if want := `Apply failed with 1 conflict: conflict with "creator" using v1: .data.a`; conflict.Message != want {
		t.Errorf("%q, want %q", conflict.Message, want)
	}
	shared := must[corev1.ConfigMap](w, 200, "PATCH", path+"applier", applyType, apply(`{"a":"1"}`))
	wantOwned(t, shared, `applier Apply v1 {"f:data":{"f:a":{}}}`, `creator Update v1 {"f:data":{".":{},"f:a":{},"f:b":{}}}`)
	forced := must[corev1.ConfigMap](w, 200, "PATCH", path+"applier&force=true", applyType, apply(`{"a":"2"}`))
	wantOwned(t, forced, `applier Apply v1 {"f:data":{"f:a":{}}}`, `creator Update v1 {"f:data":{".":{},"f:b":{}}}`)
	taken := must[corev1.ConfigMap](w, 200, "PATCH", path+"editor", mergeType, `{"data":{"a":"3"}}`)
	wantOwned(t, taken, `creator Update v1 {"f:data":{".":{},"f:b":{}}}`, `editor Update v1 {"f:data":{"f:a":{}}}`)
	given := must[corev1.ConfigMap](w, 200, "PATCH", path+"applier&force=true", applyType, apply(`{}`))
	if given.Data["a"] != "3" {
		t.Errorf("an applier removed what another manager set: %v", given.Data)
	}
	removed := must[corev1.ConfigMap](w, 200, "PATCH", path+"editor", mergeType, `{"data":{"a":null,"b":null}}`)
	if len(removed.Data) != 0 || strings.Contains(owned(removed), "f:a") || strings.Contains(owned(removed), "f:b") {
		t.Errorf("%v %s", removed.Data, owned(removed))
	}
}

// A client may send managed fields: an empty list or [{}] removes all, and what is not
// valid is ignored.
func TestClientsSendManagedFields(t *testing.T) {
	w := start(t)
	for kind, path := range map[string]string{"ConfigMap": cms, "Gadget": gadgets} {
		version := "v1"
		if kind == "Gadget" {
			w.define(crdOf(gadgetSize, ""))
			version = "stable.example.com/v1"
		}
		head := `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"x"`
		entry := func(change string) string {
			return `,"managedFields":[{"manager":"other","operation":"Apply","apiVersion":"` + version + `","time":"2025-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata": {"f:labels": {"f:q": {}, "f:a": {}}}}` + change + `}]`
		}
		first := must[metav1.PartialObjectMetadata](w, 201, "POST", path+"?fieldManager=creator", jsonType, head+`,"labels":{"a":"b","q":"r"}}}`)
		before := owned(first)
		for _, sent := range []string{
			entry(`,"operation":"Create"`), entry(`,"fieldsType":"FieldsV2"`), entry(`,"apiVersion":""`), entry(`,"fieldsV1":{"nonsense":{}}`), entry(`,"fieldsV1":{"k:{":{}}`),
			`,"managedFields":[{},{}]`, `,"managedFields":null`, "",
		} {
			got := must[metav1.PartialObjectMetadata](w, 200, "PUT", path+"/x", jsonType, head+`,"resourceVersion":"`+first.ResourceVersion+`","labels":{"a":"b","q":"r"}`+sent+`}}`)
			if owned(got) != before || got.ResourceVersion != first.ResourceVersion {
				t.Errorf("%s %s: %s", kind, sent, owned(got))
			}
		}
		replaced := must[metav1.PartialObjectMetadata](w, 200, "PATCH", path+"/x?fieldManager=editor", mergeType, `{"metadata":{"labels":{"n":"m"}`+entry("")+`}}`)
		wantOwned(t, replaced, `other Apply `+version+` {"f:metadata":{"f:labels":{"f:a":{},"f:q":{}}}}`, `editor Update `+version+` {"f:metadata":{"f:labels":{"f:n":{}}}}`)
		for _, reset := range []string{"[]", "[{}]"} {
			must[any](w, 200, "PATCH", path+"/x", mergeType, `{"metadata":{"labels":{"n":"m"}`+entry("")+`}}`)
			got := must[metav1.PartialObjectMetadata](w, 200, "PATCH", path+"/x", mergeType, `{"metadata":{"managedFields":`+reset+`}}`)
			if len(got.ManagedFields) != 0 {
				t.Errorf("%s after %s: %s", kind, reset, owned(got))
			}
		}
	}
	many := `{"metadata":{"name":"x","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` + keys(30_000, `"f:k%d":{}`) + `}]}}`
	if got := w.do("PUT", cms+"/x", jsonType, many); got.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("30,000 fields: %d", got.Code)
	}
}

// An object keeps ten managers of updates: the oldest become one.
func TestOldManagersBecomeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		must[any](w, 201, "POST", cms+"?fieldManager=m0", jsonType, configMap("x"))
		must[any](w, 200, "PATCH", cms+"/x?fieldManager=applier", applyType, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"1"}}`)
		var last *corev1.ConfigMap
		for i := range 12 {
			time.Sleep(time.Second)
			last = must[corev1.ConfigMap](w, 200, "PATCH", fmt.Sprintf("%s/x?fieldManager=m%02d", cms, i+1), mergeType, fmt.Sprintf(`{"data":{"k%d":"v"}}`, i))
		}
		if got, want := managers(last), "applier:Apply ancient-changes:Update m04:Update m05:Update m06:Update m07:Update m08:Update m09:Update m10:Update m11:Update m12:Update"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if want := `ancient-changes Update v1 {"f:data":{".":{},"f:a":{},"f:k0":{},"f:k1":{},"f:k2":{}}}`; !strings.Contains(owned(last), want) {
			t.Error(owned(last))
		}
	})
}

// Each manager's fields are those of the version in which it writes.
func TestManagersOfTwoVersions(t *testing.T) {
	w := start(t)
	const v1, v2 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	must[any](w, 201, "POST", v1+"?fieldManager=one", jsonType, `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d"},"targetCPUUtilizationPercentage":50}}`)
	got := must[autoscalingv2.HorizontalPodAutoscaler](w, 200, "PATCH", v2+"/h?fieldManager=two", mergeType,
		`{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}}`)
	wantOwned(t, got,
		`one Update autoscaling/v1 {"f:spec":{"f:maxReplicas":{},"f:minReplicas":{},"f:scaleTargetRef":{}}}`,
		`two Update autoscaling/v2 {"f:spec":{"f:metrics":{}}}`)
	if status := must[metav1.Status](w, 409, "PATCH", v1+"/h?fieldManager=three", applyType, `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","spec":{"targetCPUUtilizationPercentage":70}}`); !strings.Contains(status.Message, `"two" using autoscaling/v2`) {
		t.Error(status.Message)
	}
}

// The schema of a custom resource says which of its lists and maps have one manager.
func TestManagersOfCustomResources(t *testing.T) {
	w := start(t)
	w.define(crdOf(`{"type":"object","properties":{"spec":{"type":"object","properties":{
		"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
		"plain":{"type":"array","items":{"type":"string"}},
		"whole":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"}}},
		"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
		"map":{"type":"object","additionalProperties":{"type":"string"}},
		"ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","protocol"],"items":{"type":"object","required":["port"],
			"properties":{"port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"},"name":{"type":"string"}}}}}},
		"status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}`, `,"subresources":{"status":{}}`))
	must[any](w, 201, "POST", gadgets+"?fieldManager=a", jsonType, gadget("g", `,"spec":{"set":["x"],"plain":["x"],"whole":{"a":"b"},"map":{"k":"v"},"any":{"deep":{"er":[1]}},"ports":[{"port":80,"name":"http"}]},"status":{"ready":9}`))
	must[any](w, 200, "PATCH", gadgets+"/g?fieldManager=b", mergeType, `{"spec":{"set":["x","y"],"map":{"l":"m"},"ports":[{"port":80,"name":"web"},{"port":53,"protocol":"UDP"}]}}`)
	last := must[metav1.PartialObjectMetadata](w, 200, "PATCH", gadgets+"/g/status?fieldManager=c", mergeType, `{"metadata":{"labels":{"x":"y"}},"spec":{"plain":[]},"status":{"ready":1}}`)
	wantOwned(t, last,
		`a Update stable.example.com/v1 {"f:spec":{".":{},"f:any":{".":{},"f:deep":{".":{},"f:er":{}}},"f:map":{".":{},"f:k":{}},"f:plain":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{}}},"f:set":{".":{},"v:\"x\"":{}},"f:whole":{}}}`,
		`b Update stable.example.com/v1 {"f:spec":{"f:map":{"f:l":{}},"f:ports":{"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}},"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:name":{}}},"f:set":{"v:\"y\"":{}}}}`,
		`c Update stable.example.com/v1 status {"f:status":{".":{},"f:ready":{}}}`)
	mixed := must[metav1.PartialObjectMetadata](w, 201, "POST", gadgets+"?fieldManager=a", jsonType, gadget("m", `,"spec":{"any":{"list":[1,"a",null]}}`))
	wantOwned(t, mixed, `a Update stable.example.com/v1 {"f:spec":{".":{},"f:any":{".":{},"f:list":{}}}}`)
	conflict := must[metav1.Status](w, 409, "PATCH", gadgets+"/g?fieldManager=d", applyType, gadget("g", `,"spec":{"set":["x"],"map":{"k":"other"}}`))
	if len(conflict.Details.Causes) != 1 || conflict.Details.Causes[0].Field != ".spec.map.k" {
		t.Errorf("%+v", conflict.Details.Causes)
	}
}

// An object that does not fit the store together with its managed fields is stored
// without them.
func TestLargeObjectsHaveNoManagers(t *testing.T) {
	w := start(t)
	body := `{"metadata":{"name":"x"},"data":` + keys(60_000, `"key%d":""`) + `}`
	made := must[corev1.ConfigMap](w, 201, "POST", cms, jsonType, body)
	if len(made.Data) != 60_000 || len(made.ManagedFields) > 0 {
		t.Errorf("%d keys, %d managers", len(made.Data), len(made.ManagedFields))
	}
}

// A webhook that breaks the managed fields does not change them.
func TestWebhookBreaksManagedFields(t *testing.T) {
	w := start(t)
	h := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"replace","path":"/metadata/managedFields/0/operation","value":"Other"},{"op":"add","path":"/data/hook","value":"x"}]`)
	})
	w.register("mutating", "breaks", h.hook("a.example.com"))
	answer := w.do("POST", cms+"?fieldManager=m", jsonType, configMap("x"))
	made := &corev1.ConfigMap{}
	if err := json.Unmarshal(answer.Body.Bytes(), made); err != nil || made.Data["hook"] != "x" {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	wantOwned(t, made, `m Update v1 {"f:data":{".":{},"f:a":{}}}`)
	if warning := answer.Header().Get("Warning"); !strings.Contains(warning, ".metadata.managedFields was in an invalid state after admission") {
		t.Errorf("warning %q", warning)
	}
}
