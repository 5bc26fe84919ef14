package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func quantities(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestLimitRangeValidation(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["limitranges"]
	const at = "spec.limits[0]."
	for name, row := range map[string]struct {
		item corev1.LimitRangeItem
		want []string
	}{
		"Good":     {corev1.LimitRangeItem{Type: "Container", Min: quantities("cpu", "100m"), Max: quantities("cpu", "1"), MaxLimitRequestRatio: quantities("cpu", "10")}, nil},
		"Storage":  {corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: quantities("storage", "1Gi")}, nil},
		"OwnType":  {corev1.LimitRangeItem{Type: "example.com/Thing", Max: quantities("services", "1")}, nil},
		"BadType":  {corev1.LimitRangeItem{Type: "Thing"}, []string{at + `type: Invalid value: "Thing": must be a standard limit type or fully qualified`}},
		"BadName":  {corev1.LimitRangeItem{Type: "Pod", Max: quantities("storage", "1")}, []string{at + `max[storage]: Invalid value: "storage": must be a standard resource for containers`}},
		"NoLimits": {corev1.LimitRangeItem{Type: "PersistentVolumeClaim"}, []string{at + "limits: Required value: either minimum or maximum storage value is required, but neither was provided"}},
		"PodDefaults": {corev1.LimitRangeItem{Type: "Pod", Default: quantities("cpu", "1"), DefaultRequest: quantities("cpu", "1")}, []string{
			at + "default: Forbidden: may not be specified when `type` is 'Pod'", at + "defaultRequest: Forbidden: may not be specified when `type` is 'Pod'"}},
		"MinAboveMax": {corev1.LimitRangeItem{Type: "Pod", Min: quantities("cpu", "2"), Max: quantities("cpu", "1")}, []string{at + `min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`}},
		"Defaults": {corev1.LimitRangeItem{Type: "Container", Min: quantities("cpu", "3"), Max: quantities("cpu", "3"), Default: quantities("cpu", "4"), DefaultRequest: quantities("cpu", "5")}, []string{
			at + `defaultRequest[cpu]: Invalid value: "5": default request value 5 is greater than max value 3`,
			at + `defaultRequest[cpu]: Invalid value: "5": default request value 5 is greater than default limit value 4`,
			at + `default[cpu]: Invalid value: "3": default value 4 is greater than max value 3`}},
		"LowDefaults": {corev1.LimitRangeItem{Type: "Container", Min: quantities("cpu", "3"), Default: quantities("cpu", "2"), DefaultRequest: quantities("cpu", "1")}, []string{
			at + `defaultRequest[cpu]: Invalid value: "1": min value 3 is greater than default request value 1`,
			at + `default[cpu]: Invalid value: "3": min value 3 is greater than default value 2`}},
		"Ratio": {corev1.LimitRangeItem{Type: "Pod", MaxLimitRequestRatio: quantities("cpu", "500m")}, []string{at + `maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1`}},
		"RatioAboveMaxMin": {corev1.LimitRangeItem{Type: "Pod", Min: quantities("cpu", "1"), Max: quantities("cpu", "2"), MaxLimitRequestRatio: quantities("cpu", "3")}, []string{
			at + `maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000`}},
		"Devices": {corev1.LimitRangeItem{Type: "Container", Default: quantities("example.com/gpu", "2"), DefaultRequest: quantities("example.com/gpu", "1")}, []string{
			at + `defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in example.com/gpu`}},
	} {
		l := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{row.item}}}
		k.Default(l)
		if diff := cmp.Diff(row.want, texts(k.Validate(l, nil))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	twice := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: "Pod"}, {Type: "Pod"}}}}
	if diff := cmp.Diff([]string{`spec.limits[1].type: Duplicate value: "Pod"`}, texts(k.Validate(twice, nil))); diff != "" {
		t.Error(diff)
	}
}

func TestResourceQuotaValidation(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["resourcequotas"]
	selector := func(scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: scope, Operator: op, Values: values}}}
	}
	const exists = corev1.ScopeSelectorOpExists
	for name, row := range map[string]struct {
		spec corev1.ResourceQuotaSpec
		want []string
	}{
		"Good": {corev1.ResourceQuotaSpec{Hard: quantities("pods", "1", "cpu", "500m", "requests.storage", "1Gi", "count/jobs.batch", "1", "gold.storageclass.storage.k8s.io/requests.storage", "1Gi",
			"requests.example.com/gpu", "1", "hugepages-2Mi", "2Mi")}, nil},
		"Scopes":     {corev1.ResourceQuotaSpec{Hard: quantities("pods", "1"), Scopes: []corev1.ResourceQuotaScope{"BestEffort", "Terminating"}}, nil},
		"Selector":   {corev1.ResourceQuotaSpec{Hard: quantities("pods", "1", "cpu", "1"), ScopeSelector: selector("PriorityClass", "In", "high")}, nil},
		"Attributes": {corev1.ResourceQuotaSpec{Hard: quantities("requests.storage", "1Gi", "persistentvolumeclaims", "1"), ScopeSelector: selector("VolumeAttributesClass", "NotIn", "gold")}, nil},
		"AttributesOfPods": {corev1.ResourceQuotaSpec{Hard: quantities("pods", "1"), Scopes: []corev1.ResourceQuotaScope{"VolumeAttributesClass"}}, []string{
			`spec.scopes: Invalid value: ["VolumeAttributesClass"]: unsupported scope applied to resource`}},
		"BadNames": {corev1.ResourceQuotaSpec{Hard: quantities("nonsense", "1", "storage", "1", "a b", "1")}, []string{
			`spec.hard[a b]: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`spec.hard[a b]: Invalid value: "a b": must be a standard resource for quota`,
			`spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource type or fully qualified`,
			`spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource for quota`,
			`spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`}},
		"BadAmounts": {corev1.ResourceQuotaSpec{Hard: quantities("cpu", "-1", "pods", "1500m", "count/secrets", "500m")}, []string{
			`spec.hard[count/secrets]: Invalid value: "500m": must be an integer`,
			`spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0`,
			`spec.hard[pods]: Invalid value: "1500m": must be an integer`}},
		"BadScope":       {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Idle"}}, []string{`spec.scopes: Invalid value: ["Idle"]: unsupported scope`}},
		"ScopeOfSecrets": {corev1.ResourceQuotaSpec{Hard: quantities("secrets", "1"), Scopes: []corev1.ResourceQuotaScope{"Terminating"}}, []string{`spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`}},
		"BestEffortCPU":  {corev1.ResourceQuotaSpec{Hard: quantities("cpu", "1"), Scopes: []corev1.ResourceQuotaScope{"BestEffort"}}, []string{`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`}},
		"Conflict":       {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"BestEffort", "NotBestEffort"}}, []string{`spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes`}},
		"OperatorOfScope": {corev1.ResourceQuotaSpec{ScopeSelector: selector("Terminating", "In", "a")}, []string{
			`spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity`}},
		"NoValues":    {corev1.ResourceQuotaSpec{ScopeSelector: selector("PriorityClass", "NotIn")}, []string{"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"}},
		"Values":      {corev1.ResourceQuotaSpec{ScopeSelector: selector("PriorityClass", exists, "a")}, []string{"spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"}},
		"BadOperator": {corev1.ResourceQuotaSpec{ScopeSelector: selector("PriorityClass", "Like")}, []string{`spec.scopeSelector.matchExpressions.operator: Invalid value: "Like": not a valid selector operator`}},
	} {
		if diff := cmp.Diff(row.want, texts(k.Validate(&corev1.ResourceQuota{Spec: row.spec}, nil))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	old := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"BestEffort", "Terminating"}}}
	next := old.DeepCopy()
	next.Spec.Scopes = []corev1.ResourceQuotaScope{"Terminating", "BestEffort"}
	if errs := k.Validate(next, old); len(errs) > 0 {
		t.Errorf("another order of scopes: %v", errs)
	}
	next.Spec.Scopes = nil
	if diff := cmp.Diff([]string{"spec.scopes: Invalid value: null: field is immutable"}, texts(k.Validate(next, old))); diff != "" {
		t.Error(diff)
	}
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: quantities("pods", "3", "limits.cpu", "1", "cpu", "2"), Used: quantities("pods", "1", "cpu", "500m")}}
	q.Name = "q"
	if diff := cmp.Diff([]any{"q", "cpu: 500m/2, pods: 1/3", "limits.cpu: 0/1", "<unknown>"}, k.Row(q, today)); diff != "" {
		t.Error(diff)
	}
}
