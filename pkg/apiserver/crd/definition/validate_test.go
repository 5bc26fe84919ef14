package definition_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"podium/pkg/apiserver/crd/definition"
)

// base is a valid definition with two versions, so that field paths have versions.
const base = `{"metadata":{"name":"gadgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"},
	"versions":[
		{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]},
	"status":{"storedVersions":["v1"]}}`

// with returns the definition with the string old replaced by new.
func with(t *testing.T, old, new string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	if !strings.Contains(base, old) {
		t.Fatalf("%s is not in the definition", old)
	}
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal([]byte(strings.Replace(base, old, new, 1)), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func texts(t *testing.T, obj, old *apiextensionsv1.CustomResourceDefinition) (out []string) {
	t.Helper()
	for _, err := range definition.Validate(obj, old) {
		out = append(out, err.Error())
	}
	return out
}

func TestValidate(t *testing.T) {
	if errs := texts(t, with(t, "v1", "v1"), nil); len(errs) > 0 {
		t.Fatalf("the base is not valid: %v", errs)
	}
	const (
		schema = `{"type":"object","properties":{"spec":{"type":"object"}}}`
		at     = "spec.versions[0].schema.openAPIV3Schema"
	)
	of := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	for name, c := range map[string]struct{ old, new, want string }{
		"name":                   {`"name":"gadgets.example.com"`, `"name":"gadgets.example.org"`, `metadata.name: Invalid value: "gadgets.example.org": must be spec.names.plural+"."+spec.group`},
		"group without dot":      {`"group":"example.com"`, `"group":"example"`, `spec.group: Invalid value: "example": should be a domain with at least one dot`},
		"no group":               {`"group":"example.com"`, `"group":""`, `spec.group: Required value`},
		"scope":                  {`"Namespaced"`, `"Global"`, `spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced"`},
		"kind":                   {`"kind":"Gadget"`, `"kind":"Gad get"`, `spec.names.kind: Invalid value: "Gad get": may have mixed case, but should otherwise match: a DNS-1035 label`},
		"kind and list kind":     {`"GadgetList"`, `"Gadget"`, `spec.names.listKind: Invalid value: "Gadget": kind and listKind may not be the same`},
		"preserveUnknownFields":  {`"scope"`, `"preserveUnknownFields":true,"scope"`, `spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead`},
		"two storage versions":   {`"storage":false`, `"storage":true`, `must have exactly one version marked as storage version`},
		"version twice":          {`"name":"v2"`, `"name":"v1"`, `must contain unique version names`},
		"version name":           {`"name":"v2"`, `"name":"2"`, `spec.versions[1].name: Invalid value: "2": a DNS-1035 label`},
		"no schema":              {`,"schema":{"openAPIV3Schema":{"type":"object"}}`, ``, `spec.versions[1].schema.openAPIV3Schema: Required value`},
		"deprecation":            {`"name":"v2"`, `"name":"v2","deprecationWarning":"x"`, `spec.versions[1].deprecationWarning: Invalid value: "x": can only be set for deprecated versions`},
		"stored versions":        {`"storedVersions":["v1"]`, `"storedVersions":["v1","v0"]`, `status.storedVersions[1]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version`},
		"conversion nowhere":     {`"scope"`, `"conversion":{"strategy":"Webhook"},"scope"`, `spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook`},
		"conversion over HTTP":   {`"scope"`, `"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"http://a.test"},"conversionReviewVersions":["v1"]}},"scope"`, `spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme`},
		"unknown reviews":        {`"scope"`, `"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://a.test"},"conversionReviewVersions":["v7"]}},"scope"`, `must include at least one of v1, v1beta1`},
		"unknown conversion":     {`"scope"`, `"conversion":{"strategy":"Magic"},"scope"`, `spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"`},
		"scale path":             {`"name":"v2"`, `"name":"v2","subresources":{"scale":{"specReplicasPath":".status.a","statusReplicasPath":".status.b"}}`, `spec.versions[1].subresources.scale.specReplicasPath: Invalid value: ".status.a": should be a json path under .spec`},
		"column type":            {`"name":"v2"`, `"name":"v2","additionalPrinterColumns":[{"name":"A","type":"text","jsonPath":".a"}]`, `spec.versions[1].additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string`},
		"column path":            {`"name":"v2"`, `"name":"v2","additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":"a"}]`, `spec.versions[1].additionalPrinterColumns[0].JSONPath: Invalid value: "a": must be a simple json path starting with .`},
		"selectable field":       {`"name":"v1"`, `"name":"v1","selectableFields":[{"jsonPath":".spec"}]`, `spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer`},
		"type":                   {schema, of(`"a":{"type":"text"}`), at + `.properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"`},
		"reference":              {schema, of(`"a":{"$ref":"#/a","type":"object"}`), at + `.properties[a].$ref: Forbidden: $ref is not supported`},
		"unique items":           {schema, of(`"a":{"type":"array","items":{"type":"string"},"uniqueItems":true}`), at + `.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic`},
		"nullable root":          {schema, `{"type":"object","nullable":true}`, at + `.nullable: Forbidden: nullable cannot be true at the root`},
		"default in metadata":    {schema, of(`"metadata":{"type":"object","properties":{"name":{"type":"string","default":"x"}}}`), at + `.properties[metadata]`},
		"both properties":        {schema, of(`"a":{"type":"object","properties":{"b":{"type":"string"}},"additionalProperties":{"type":"string"}}`), at + `.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive`},
		"keep nothing":           {schema, of(`"a":{"type":"object","x-kubernetes-preserve-unknown-fields":false}`), at + `.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined`},
		"map type":               {schema, of(`"a":{"type":"object","x-kubernetes-map-type":"odd"}`), at + `.properties[a].x-kubernetes-map-type: Unsupported value: "odd": supported values: "atomic", "granular"`},
		"list type of an object": {schema, of(`"a":{"type":"object","x-kubernetes-list-type":"set"}`), at + `.properties[a].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified`},
		"map without keys":       {schema, of(`"a":{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"map"}`), at + `.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map`},
		"optional key":           {schema, of(`"a":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"string"}}}}`), at + `.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property`},
		"set of objects":         {schema, of(`"a":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"object"}}`), `must be atomic as item of a list with x-kubernetes-list-type=set`},
		"empty rule":             {schema, of(`"a":{"type":"string","x-kubernetes-validations":[{"rule":" "}]}`), at + `.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified`},
		"message with lines":     {schema, of(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"true","message":"a\nb"}]}`), at + `.properties[a].x-kubernetes-validations[0].message: Invalid value: "a\nb": must not contain line breaks`},
		"reason":                 {schema, of(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"true","reason":"Odd"}]}`), at + `.properties[a].x-kubernetes-validations[0].reason: Unsupported value: "Odd"`},
		"field path":             {schema, of(`"a":{"type":"object","x-kubernetes-validations":[{"rule":"true","fieldPath":".b"}]}`), at + `.properties[a].x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path`},
		"no boolean":             {schema, of(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"self"}]}`), `must evaluate to a bool`},
		"oldSelf in a set":       {schema, of(`"a":{"type":"array","items":{"type":"string","maxLength":5,"x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}`), `oldSelf cannot be used on the uncorrelatable portion of the schema within ` + at + `.properties[a]`},
		"optionalOldSelf":        {schema, of(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"true","optionalOldSelf":true}]}`), at + `.properties[a].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule`},
	} {
		errs := texts(t, with(t, c.old, c.new), nil)
		if !slices.ContainsFunc(errs, func(text string) bool { return strings.Contains(text, c.want) }) {
			t.Errorf("%s: %q\nwant %q", name, errs, c.want)
		}
	}
}

// Costs grow with how often a value can occur.
func TestRuleCost(t *testing.T) {
	const schema = `{"type":"object","properties":{"spec":{"type":"object"}}}`
	list := func(limits string) string {
		return `{"type":"object","properties":{"a":{"type":"array"` + limits + `,"items":{"type":"string","x-kubernetes-validations":[{"rule":"self.matches('^a*$')"}]}}}}`
	}
	if errs := texts(t, with(t, schema, list("")), nil); len(errs) == 0 || !strings.Contains(errs[0], "estimated rule cost exceeds budget") {
		t.Errorf("without a limit: %v", errs)
	}
	bounded := strings.Replace(list(`,"maxItems":10`), `"type":"string"`, `"type":"string","maxLength":20`, 1)
	if errs := texts(t, with(t, schema, bounded), nil); len(errs) > 0 {
		t.Errorf("with limits: %v", errs)
	}
}

func TestValidateUpdate(t *testing.T) {
	old := with(t, "v1", "v1")
	old.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	for name, c := range map[string]struct{ old, new, want string }{
		"scope":  {`"Namespaced"`, `"Cluster"`, `spec.scope: Invalid value: "Cluster": field is immutable`},
		"kind":   {`"kind":"Gadget"`, `"kind":"Widget"`, `spec.names.kind: Invalid value: "Widget": field is immutable`},
		"plural": {`"plural":"gadgets"`, `"plural":"widgets"`, `spec.names.plural: Invalid value: "widgets": field is immutable`},
		"group":  {`"group":"example.com"`, `"group":"example.org"`, `spec.group: Invalid value: "example.org": field is immutable`},
	} {
		if errs := texts(t, with(t, c.old, c.new), old); !slices.Contains(errs, c.want) {
			t.Errorf("%s: %q\nwant %q", name, errs, c.want)
		}
	}
}
