package apiserver_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const deploys = "/apis/apps/v1/namespaces/default/deployments"

func deployment(spec string) string {
	return `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"},"spec":{` + spec +
		`"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
}

func managers(obj metav1.Object) string {
	var out []string
	for _, m := range obj.GetManagedFields() {
		name := m.Manager + ":" + string(m.Operation)
		if m.Subresource != "" {
			name += "/" + m.Subresource
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestApply(t *testing.T) {
	w := start(t)
	const path = deploys + "/web"
	made := must[appsv1.Deployment](w, 201, "PATCH", path+"?fieldManager=one", applyType, deployment(`"replicas":1,`))
	if managers(made) != "one:Apply" || *made.Spec.Replicas != 1 || made.Generation != 1 {
		t.Fatalf("%s %+v", managers(made), made.Spec)
	}
	same := must[appsv1.Deployment](w, 200, "PATCH", path+"?fieldManager=one", applyType, deployment(`"replicas":1,`))
	if same.ResourceVersion != made.ResourceVersion {
		t.Error("applying the same again wrote")
	}
	conflict := must[metav1.Status](w, 409, "PATCH", path+"?fieldManager=two", applyType, deployment(`"replicas":2,`))
	if conflict.Reason != metav1.StatusReasonConflict || len(conflict.Details.Causes) != 1 ||
		conflict.Details.Causes[0].Type != metav1.CauseTypeFieldManagerConflict || conflict.Details.Causes[0].Field != ".spec.replicas" {
		t.Errorf("%+v", conflict)
	}
	taken := must[appsv1.Deployment](w, 200, "PATCH", path+"?fieldManager=two&force=true", applyType, deployment(`"replicas":2,`))
	if *taken.Spec.Replicas != 2 || taken.Generation != 2 {
		t.Errorf("%+v", taken)
	}
	plain := must[appsv1.Deployment](w, 200, "PATCH", path+"?fieldManager=three", mergeType, `{"spec":{"paused":true}}`)
	if managers(plain) != "one:Apply two:Apply three:Update" {
		t.Errorf("after a plain write: %s", managers(plain))
	}
	status := must[appsv1.Deployment](w, 200, "PATCH", path+"/status?fieldManager=four", mergeType, `{"status":{"replicas":2}}`)
	if !strings.Contains(managers(status), "four:Update/status") || status.Generation != plain.Generation {
		t.Errorf("after a status write: %s, generation %d", managers(status), status.Generation)
	}
	scale := must[autoscalingv1.Scale](w, 200, "PATCH", path+"/scale?fieldManager=five&force=true", applyType, `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web"},"spec":{"replicas":5}}`)
	if scale.Spec.Replicas != 5 {
		t.Errorf("%+v", scale)
	}
	last := must[appsv1.Deployment](w, 200, "GET", path, "", "")
	if *last.Spec.Replicas != 5 || !strings.Contains(managers(last), "five:Apply/scale") {
		t.Errorf("%s", managers(last))
	}
}

func TestApplyToWhatWasNeverApplied(t *testing.T) {
	w := start(t)
	must[corev1.ConfigMap](w, 201, "POST", cms, jsonType, configMap("x"))
	reset := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x", mergeType, `{"metadata":{"managedFields":[]}}`)
	later := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x", mergeType, `{"metadata":{"labels":{"a":"b"}}}`)
	if len(reset.ManagedFields) != 0 || len(later.ManagedFields) != 0 {
		t.Errorf("after a reset: %q, then %q", managers(reset), managers(later))
	}
	conflict := must[metav1.Status](w, 409, "PATCH", cms+"/x?fieldManager=m", applyType, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"2"}}`)
	if !strings.Contains(conflict.Message, `conflict with "before-first-apply" using v1: .data.a`) {
		t.Error(conflict.Message)
	}
	taken := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x?fieldManager=m&force=true", applyType, "kind: ConfigMap\napiVersion: v1\ndata: {b: '2'}")
	if taken.Data["a"] != "1" || taken.Data["b"] != "2" || managers(taken) != "m:Apply before-first-apply:Update" {
		t.Errorf("%s %v", managers(taken), taken.Data)
	}
	without := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x?fieldManager=m", applyType, "kind: ConfigMap\napiVersion: v1\ndata: {}")
	if _, still := without.Data["b"]; still {
		t.Errorf("what its only manager no longer applies stays: %v", without.Data)
	}
}

// kubectl may take over what it applied on the client side, but nothing else.
func TestApplyAfterClientSideApply(t *testing.T) {
	w := start(t)
	const last = `{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"1\"}}`
	must[corev1.ConfigMap](w, 201, "POST", cms+"?fieldManager=kubectl-client-side-apply", jsonType,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"`+last+`"}},"data":{"a":"1","b":"2"}}`)
	taken := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/x?fieldManager=kubectl", applyType, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"2"}}`)
	if got := managers(taken); got != "kubectl:Apply kubectl-client-side-apply:Update" {
		t.Fatal(got)
	}
	if conflict := must[metav1.Status](w, 409, "PATCH", cms+"/x?fieldManager=kubectl", applyType, `{"kind":"ConfigMap","apiVersion":"v1","data":{"b":"3"}}`); !strings.Contains(conflict.Message, ".data.b") {
		t.Error(conflict.Message)
	}
}

func TestPatches(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", deploys, jsonType, deployment(""))
	const path = deploys + "/web"
	containers := func(d *appsv1.Deployment) (out []string) {
		for _, c := range d.Spec.Template.Spec.Containers {
			out = append(out, c.Name+"="+c.Image)
		}
		return out
	}
	for _, tc := range []struct{ contentType, body, want string }{
		{smpType, `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"j"}]}}}}`, "d=j c=i"},
		{smpType, `{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}}}`, "d=j"},
		{smpType, `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"e"}],"containers":[{"name":"e","image":"k"}]}}}}`, "d=j e=k"},
		{mergeType, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"l"}]}}}}`, "c=l"},
		{jsonPatch, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"m"},{"op":"test","path":"/kind","value":"Deployment"}]`, "c=m"},
	} {
		d := must[appsv1.Deployment](w, 200, "PATCH", path, tc.contentType, tc.body)
		if got := strings.Join(containers(d), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.body, got, tc.want)
		}
	}
	must[appsv1.Deployment](w, 200, "PATCH", path, mergeType, `{"metadata":{"labels":{"x":"1","y":"2"}},"kind":"Deployment"}`)
	labelled := must[appsv1.Deployment](w, 200, "PATCH", path, mergeType, `{"metadata":{"labels":{"x":null}}}`)
	if len(labelled.Labels) != 1 || labelled.Labels["y"] != "2" {
		t.Errorf("labels %v", labelled.Labels)
	}
	if got := must[appsv1.Deployment](w, 200, "GET", path, "", ""); got.Labels["y"] != "2" || len(got.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("a patch of labels changed %+v", got.Spec)
	}
}

func TestScale(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", deploys, jsonType, deployment(`"replicas":3,`))
	const path = deploys + "/web/scale"
	scale := must[autoscalingv1.Scale](w, 200, "GET", path, "", "")
	if scale.Spec.Replicas != 3 || scale.Kind != "Scale" || scale.ResourceVersion == "" || scale.Status.Selector != "a=b" {
		t.Errorf("%+v", scale)
	}
	body := func(rv string) string {
		return `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","resourceVersion":"` + rv + `"},"spec":{"replicas":4}}`
	}
	must[metav1.Status](w, 409, "PUT", path, jsonType, body("1"))
	scale = must[autoscalingv1.Scale](w, 200, "PUT", path, jsonType, body(scale.ResourceVersion))
	if scale.Spec.Replicas != 4 {
		t.Errorf("%+v", scale)
	}
	scale = must[autoscalingv1.Scale](w, 200, "PATCH", path, mergeType, `{"spec":{"replicas":0}}`)
	if scale.Spec.Replicas != 0 {
		t.Errorf("%+v", scale)
	}
	must[metav1.Status](w, 422, "PATCH", path, mergeType, `{"spec":{"replicas":-1}}`)
	if d := must[appsv1.Deployment](w, 200, "GET", deploys+"/web", "", ""); *d.Spec.Replicas != 0 || d.Generation != 3 {
		t.Errorf("replicas %d, generation %d", *d.Spec.Replicas, d.Generation)
	}
}
