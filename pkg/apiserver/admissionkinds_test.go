package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"podium/pkg/scheme"
)

// Bad configurations of admission are refused with the path of each error.
func TestBadAdmissionConfigurations(t *testing.T) {
	const rules = `"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]`
	const hook = `"name":"a.b.io","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://a.test"}`
	const policy = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}`
	webhooks := func(text string) string { return `{"metadata":{"name":"x"},"webhooks":[` + text + `]}` }
	spec := func(text string) string { return `{"metadata":{"name":"x"},"spec":{` + text + `}}` }
	w := start(t)
	for i, row := range []struct {
		resource, body string
		want           []string // the fields; empty: the object is created
	}{
		{"mutatingwebhookconfigurations", webhooks(`{` + hook + `,` + rules + `}`), nil},
		{"validatingwebhookconfigurations", webhooks(`{}`), []string{"webhooks[0].name", "webhooks[0].sideEffects", "webhooks[0].clientConfig", "webhooks[0].admissionReviewVersions"}},
		{"mutatingwebhookconfigurations", webhooks(`{` + hook + `,"timeoutSeconds":31,"failurePolicy":"No","matchPolicy":"No","reinvocationPolicy":"No","rules":[{}]}`),
			[]string{"webhooks[0].rules[0].operations", "webhooks[0].rules[0].apiGroups", "webhooks[0].rules[0].apiVersions", "webhooks[0].rules[0].resources",
				"webhooks[0].failurePolicy", "webhooks[0].matchPolicy", "webhooks[0].timeoutSeconds", "webhooks[0].reinvocationPolicy"}},
		{"validatingwebhookconfigurations", webhooks(`{` + hook + `},{` + hook + `}`), []string{"webhooks[1].name"}},
		{"validatingwebhookconfigurations", webhooks(`{"name":"a.b.io","sideEffects":"Some","admissionReviewVersions":["v3"],"clientConfig":{"url":"http://u@a.test?q#f"}}`),
			[]string{"webhooks[0].sideEffects", "webhooks[0].clientConfig.url", "webhooks[0].clientConfig.url", "webhooks[0].clientConfig.url", "webhooks[0].clientConfig.url", "webhooks[0].admissionReviewVersions"}},
		{"validatingwebhookconfigurations", webhooks(`{` + hook + `,"matchConditions":[{"name":"a","expression":"1"},{"name":"a","expression":"x"},{"expression":" "}]}`),
			[]string{"webhooks[0].matchConditions[0].expression", "webhooks[0].matchConditions[1].expression", "webhooks[0].matchConditions[1].name", "webhooks[0].matchConditions[2].expression", "webhooks[0].matchConditions[2].name"}},
		{"validatingadmissionpolicies", spec(policy + `,"validations":[{"expression":"true"}]`), nil},
		{"validatingadmissionpolicies", spec(``), []string{"spec.matchConstraints", "spec.validations", "spec.auditAnnotations"}},
		{"validatingadmissionpolicies", spec(policy + `,"variables":[{"name":"1","expression":"x"}],"paramKind":{},"validations":[{"expression":"params.a","message":"a\nb","messageExpression":"1","reason":"No"}]`),
			[]string{"spec.paramKind.apiVersion", "spec.paramKind.kind", "spec.variables[0].name", "spec.variables[0].expression",
				"spec.validations[0].messageExpression", "spec.validations[0].message", "spec.validations[0].reason", "spec.validations[0].expression"}},
		{"validatingadmissionpolicybindings", spec(`"policyName":"p","validationActions":["Deny","Warn","Warn"],"paramRef":{}`),
			[]string{"spec.paramRef", "spec.paramRef.parameterNotFoundAction", "spec.validationActions[2]", "spec.validationActions"}},
		{"mutatingadmissionpolicies", spec(policy + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/a\"}]"}}]`), nil},
		{"mutatingadmissionpolicies", spec(strings.Replace(policy, `"CREATE"`, `"CREATE","CONNECT","DELETE"`, 1) + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/a\"}]"}}]`),
			[]string{"spec.matchConstraints.resourceRules[0].operations[1]", "spec.matchConstraints.resourceRules[0].operations[2]"}},
		{"mutatingadmissionpolicies", spec(policy + `,"mutations":[{"patchType":"No"},{"patchType":"JSONPatch"},{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"1"}}]`),
			[]string{"spec.mutations[0].patchType", "spec.mutations[1].jsonPatch", "spec.mutations[2].applyConfiguration.expression", "spec.reinvocationPolicy"}},
		{"mutatingadmissionpolicybindings", spec(``), []string{"spec.policyName"}},
	} {
		rec := w.do("POST", registrationPath+row.resource, scheme.JSON, row.body)
		if row.want == nil {
			if rec.Code != 201 {
				t.Errorf("%d: %d %s", i, rec.Code, rec.Body)
			}
			continue
		}
		var got []string
		if status := statusOf(t, rec); rec.Code == 422 && status.Details != nil {
			for _, c := range status.Details.Causes {
				got = append(got, c.Field)
			}
		}
		slices.Sort(got)
		slices.Sort(row.want)
		if !slices.Equal(got, row.want) {
			t.Errorf("%s\ngot  %d %v\nwant %v", fmt.Sprint(i), rec.Code, got, row.want)
		}
	}
}
