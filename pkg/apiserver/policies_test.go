package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policy creates a policy and a binding of it; kind is Validating or Mutating.
func (w *world) policy(kind, name, spec, binding string) {
	w.Helper()
	path := registrationPath + strings.ToLower(kind) + "admissionpolic"
	must[metav1.PartialObjectMetadata](w, 201, "POST", path+"ies", jsonType, fmt.Sprintf(`{"metadata":{"name":%q},"spec":%s}`, name, spec))
	must[metav1.PartialObjectMetadata](w, 201, "POST", path+"ybindings", jsonType, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q,%s}}`, name, name, binding))
}

const (
	onConfigMaps  = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["configmaps"]}]}`
	onDeployments = `"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["deployments"]}]}`
	denies        = `"validationActions":["Deny"]`
)

func TestValidatingPolicies(t *testing.T) {
	for name, row := range map[string]struct {
		spec, binding string
		body          string // default: a ConfigMap with data a=1
		code          int
		want          string // the message, or the warning of a 201
	}{
		"denies": {spec: `"validations":[{"expression":"object.data.a != '1'"}]`, binding: denies, code: 422,
			want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: object.data.a != '1'"},
		"admits": {spec: `"validations":[{"expression":"object.data.a == '1'"}]`, binding: denies, code: 201},
		"message and reason": {spec: `"validations":[{"expression":"false","message":"no","messageExpression":"'is ' + object.data.a","reason":"Forbidden"}]`, binding: denies, code: 403,
			want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: is 1"},
		"warns": {spec: `"validations":[{"expression":"false"}]`, binding: `"validationActions":["Warn","Audit"]`, code: 201,
			want: `299 - "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': failed expression: false"`},
		"variables": {spec: `"variables":[{"name":"a","expression":"object.data.a"},{"name":"b","expression":"variables.a + '2'"}],"validations":[{"expression":"variables.b == '12'"},{"expression":"variables.b == '13'"}]`,
			binding: denies, code: 422, want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: variables.b == '13'"},
		"condition": {spec: `"matchConditions":[{"name":"not-x","expression":"request.name != 'x'"}],"validations":[{"expression":"false"}]`, binding: denies, code: 201},
		"error fails closed": {spec: `"validations":[{"expression":"object.data.none == ''"}]`, binding: denies, code: 422,
			want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: expression 'object.data.none == ''' resulted in error: no such key: none"},
		"error fails open": {spec: `"failurePolicy":"Ignore","validations":[{"expression":"object.data.none == ''"}]`, binding: denies, code: 201},
		"params": {spec: `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"object.data.a == params.data.want"}]`,
			binding: denies + `,"paramRef":{"name":"params","namespace":"kube-system","parameterNotFoundAction":"Deny"}`, code: 422,
			want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: object.data.a == params.data.want"},
		"params by selector": {spec: `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"object.data.a == params.data.want"}]`,
			binding: denies + `,"paramRef":{"selector":{"matchLabels":{"is":"params"}},"namespace":"kube-system","parameterNotFoundAction":"Deny"}`, code: 422,
			want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: object.data.a == params.data.want"},
		"params not found": {spec: `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"true"}]`,
			binding: denies + `,"paramRef":{"name":"none","parameterNotFoundAction":"Deny"}`, code: 422,
			want: "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		"params not found, allowed": {spec: `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"false"}]`,
			binding: denies + `,"paramRef":{"name":"none","parameterNotFoundAction":"Allow"}`, code: 201},
		"namespace":              {spec: `"validations":[{"expression":"namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Active'"}]`, binding: denies, code: 201},
		"authorizer":             {spec: `"validations":[{"expression":"authorizer.group('').resource('pods').namespace('default').check('create').allowed()"},{"expression":"authorizer.requestResource.check('create').allowed()"}]`, binding: denies, code: 201},
		"binding does not match": {spec: `"validations":[{"expression":"false"}]`, binding: denies + `,"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}}`, code: 201},
		// Each search costs a thousand units and little time.
		"costs too much": {spec: `"validations":[{"expression":"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, !'` + strings.Repeat("a", 10000) + `'.contains('b')))))"}]`,
			binding: denies, code: 422, want: "operation cancelled: actual cost limit exceeded"},
		"audit annotation fails": {spec: `"auditAnnotations":[{"key":"k","valueExpression":"string(object.data.none)"}]`, binding: denies, code: 422, want: "no such key: none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			must[corev1.ConfigMap](w, 201, "POST", "/api/v1/namespaces/kube-system/configmaps", jsonType, `{"metadata":{"name":"params","labels":{"is":"params"}},"data":{"want":"2"}}`)
			w.policy("Validating", "p", "{"+onConfigMaps+","+row.spec+"}", row.binding)
			rec := w.do("POST", cms, jsonType, configMap("x"))
			if rec.Code != row.code {
				t.Fatalf("%d, want %d: %s", rec.Code, row.code, rec.Body)
			}
			got := rec.Header().Get("Warning")
			if rec.Code != 201 {
				got = statusOf(t, rec).Message
			}
			if !strings.Contains(got, row.want) || row.want == "" && got != "" {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestMutatingPolicies(t *testing.T) {
	w := start(t)
	w.policy("Mutating", "replicas", `{`+onDeployments+`,"reinvocationPolicy":"Never","mutations":[
		{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"}},
		{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{annotations: {'replicas': string(object.spec.replicas)}}}"}},
		{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'test', path: '/spec/replicas', value: 3}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]"}}
	]}`, `"matchResources":{}`)
	d := must[appsv1.Deployment](w, 201, "POST", "/apis/apps/v1/namespaces/default/deployments", jsonType,
		`{"metadata":{"name":"d","labels":{"x":"y"}},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	if *d.Spec.Replicas != 3 || d.Annotations["replicas"] != "3" || d.Labels["a/b"] != "c" || d.Labels["x"] != "y" || len(d.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("mutated to %d replicas, %v, %v, %+v", *d.Spec.Replicas, d.Annotations, d.Labels, d.Spec.Template.Spec)
	}
	w.policy("Mutating", "atomic", `{`+onConfigMaps+`,"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: Object.data{a: object.data.none}}"}}]}`, `"matchResources":{}`)
	rec := w.do("POST", cms, jsonType, configMap("x"))
	if message := statusOf(t, rec).Message; rec.Code != 403 || message != "policy 'atomic' with binding 'atomic' denied request: expression 'Object{data: Object.data{a: object.data.none}}' resulted in error: no such key: none" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
