package policystatus

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
)

// published serves the OpenAPI documents of the repository, and those of custom resources.
type published map[string]string

func (p published) Do(_ context.Context, r client.Request) ([]byte, http.Header, error) {
	if body, ok := p[r.Path]; ok {
		return []byte(body), nil, nil
	}
	body, err := os.ReadFile(filepath.Join("..", "..", "..", "api", filepath.FromSlash(r.Path)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		err = apierrors.NewNotFound(schema.GroupResource{}, r.Path)
	}
	return body, nil, err
}

func rule(group, version string, resources ...string) registration.NamedRuleWithOperations {
	return registration.NamedRuleWithOperations{RuleWithOperations: registration.RuleWithOperations{
		Rule: registration.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}
}

func policyOf(expression string, rules ...registration.NamedRuleWithOperations) *policy {
	return &policy{Spec: registration.ValidatingAdmissionPolicySpec{
		MatchConstraints: &registration.MatchResources{ResourceRules: rules},
		Validations:      []registration.Validation{{Expression: expression}},
	}}
}

const gadgets = `{"paths":{"/apis/example.com/v1/namespaces/{namespace}/gadgets":{"post":{"x-kubernetes-group-version-kind":{"group":"example.com","version":"v1","kind":"Gadget"}}}},
"components":{"schemas":{"com.example.v1.Gadget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Gadget"}],"properties":{
"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"type":"object"},
"spec":{"type":"object","properties":{"size":{"type":"integer"},"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"self":{"$ref":"#/components/schemas/com.example.v1.Gadget"}}}}}}}}`

func TestExpressionsAreCompiledForEachKind(t *testing.T) {
	deployments, gadget := rule("apps", "v1", "deployments"), rule("example.com", "v1", "gadgets")
	api := published{"/openapi/v3/apis/example.com/v1": gadgets}
	for name, tc := range map[string]struct {
		policy *policy
		want   []string
	}{
		"Fits":              {policyOf("object.spec.replicas <= 5 && object.metadata.name != oldObject.metadata.name", deployments), nil},
		"NoSuchField":       {policyOf("object.replicas > 1", deployments), []string{"spec.validations[0].expression apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'"}},
		"WrongType":         {policyOf("object.spec.replicas == 'five'", deployments), []string{"spec.validations[0].expression apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'"}},
		"IntOrString":       {policyOf("object.spec.strategy.rollingUpdate.maxSurge == 1", deployments), nil},
		"Quantity":          {policyOf("object.spec.template.spec.containers.all(c, quantity(c.resources.limits['cpu']).isLessThan(quantity('1')))", deployments), nil},
		"TwoKinds":          {policyOf("object.spec.replicas > 1", rule("apps", "v1", "deployments", "daemonsets", "replicasets")), []string{"spec.validations[0].expression apps/v1, Kind=DaemonSet: ERROR: <input>:1:12: undefined field 'replicas'"}},
		"CoreGroup":         {policyOf("object.spec.node == ''", rule("", "v1", "pods")), []string{"spec.validations[0].expression /v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'node'"}},
		"Wildcards":         {policyOf("object.foo", rule("*", "v1", "deployments"), rule("apps", "*", "deployments"), rule("apps", "v1", "*", "deployments/*", "deployments/scale")), nil},
		"NotServed":         {policyOf("object.foo", rule("none.example.com", "v1", "things"), rule("apps", "v1", "things")), nil},
		"CustomResource":    {policyOf("object.spec.size > 1 && object.spec.free.anything > 1 && object.spec.self.anything", gadget), nil},
		"CustomResourceBad": {policyOf("object.spec.sise > 1", gadget), []string{"spec.validations[0].expression example.com/v1, Kind=Gadget: ERROR: <input>:1:12: undefined field 'sise'"}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, api, tc.policy, tc.want) })
	}
}

func TestParametersVariablesAndMessagesAreChecked(t *testing.T) {
	p := policyOf("variables.count > params.spec.sise", rule("apps", "v1", "deployments"))
	p.Spec.ParamKind = &registration.ParamKind{APIVersion: "example.com/v1", Kind: "Gadget"}
	p.Spec.Variables = []registration.Variable{{Name: "count", Expression: "object.spec.replicas"}}
	p.Spec.Validations = append(p.Spec.Validations, registration.Validation{
		Expression: "variables.count > params.spec.size", MessageExpression: "'replicas: ' + object.spec.replicas",
	})
	compare(t, published{"/openapi/v3/apis/example.com/v1": gadgets}, p, []string{
		"spec.validations[0].expression apps/v1, Kind=Deployment: ERROR: <input>:1:30: undefined field 'sise'",
		"spec.validations[1].messageExpression apps/v1, Kind=Deployment: ERROR: <input>:1:14: found no matching overload for '_+_' applied to '(string, int)'",
	})
}

// compare checks a policy, and compares the first lines of the warnings.
func compare(t *testing.T, api published, p *policy, want []string) {
	t.Helper()
	warnings, err := check(t.Context(), api, p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		first, _, _ := strings.Cut(w.Warning, "\n")
		got = append(got, w.FieldRef+" "+first)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAtMostTenResourcesAreChecked(t *testing.T) {
	m := &registration.MatchResources{ResourceRules: []registration.NamedRuleWithOperations{
		rule("b", "v1", strings.Split("abcdefghijkl", "")...), rule("a", "v1", "z", "z"),
	}}
	var got []string
	for _, r := range resources(m) {
		got = append(got, r.Group+r.Resource)
	}
	if diff := cmp.Diff(strings.Fields("az ba bb bc bd be bf bg bh bi"), got); diff != "" {
		t.Errorf("in the order of group, version and resource (-want +got):\n%s", diff)
	}
}

type broken struct{}

func (broken) Do(context.Context, client.Request) ([]byte, http.Header, error) {
	return nil, nil, errors.New("connection refused")
}

func TestChecksAreRetriedWhenTheAPIFails(t *testing.T) {
	if _, err := check(t.Context(), broken{}, policyOf("true", rule("apps", "v1", "deployments"))); err == nil {
		t.Error("the check claims to have read the schema")
	}
}
