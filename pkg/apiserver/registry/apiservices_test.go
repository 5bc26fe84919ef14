package registry_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

func TestAPIServices(t *testing.T) {
	var kind *registry.Kind
	for _, k := range newRig(t, "10.0.0.0/24", somePorts).kinds {
		if k.Resource == "apiservices" {
			kind = k
		}
	}
	port := func(n int32) *int32 { return &n }
	for name, row := range map[string]struct {
		change func(*apiregistrationv1.APIService)
		want   []string
	}{
		"valid": {change: func(*apiregistrationv1.APIService) {}},
		"local": {change: func(s *apiregistrationv1.APIService) { s.Spec.Service, s.Spec.CABundle = nil, nil }},
		"legacy": {change: func(s *apiregistrationv1.APIService) {
			s.Name, s.Spec.Group, s.Spec.Version = "v1.", "", "v1"
		}},
		"name": {change: func(s *apiregistrationv1.APIService) { s.Name = "v1.other" },
			want: []string{"metadata.name: Invalid value: \"v1.other\": must be `spec.version+\".\"+spec.group`: \"v1.example.com\""}},
		"no group": {change: func(s *apiregistrationv1.APIService) { s.Name, s.Spec.Group, s.Spec.Version = "v2.", "", "v2" },
			want: []string{"spec.group: Required value: only v1 may have an empty group and it better be legacy kube"}},
		"priorities": {change: func(s *apiregistrationv1.APIService) { s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority = 20001, 0 },
			want: []string{"spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000", "spec.versionPriority: Invalid value: 0: must be positive and less than 1000"}},
		"local with trust": {change: func(s *apiregistrationv1.APIService) { s.Spec.Service, s.Spec.InsecureSkipTLSVerify = nil, true },
			want: []string{`spec.caBundle: Invalid value: "2 bytes": local APIServices may not have a caBundle`, "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"}},
		"no service": {change: func(s *apiregistrationv1.APIService) {
			s.Spec.Service = &apiregistrationv1.ServiceReference{Port: port(0)}
		},
			want: []string{"spec.service.namespace: Required value", "spec.service.name: Required value", "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"}},
		"both trusts": {change: func(s *apiregistrationv1.APIService) { s.Spec.InsecureSkipTLSVerify = true },
			want: []string{"spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"}},
	} {
		s := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: apiregistrationv1.APIServiceSpec{
			Group: "example.com", Version: "v1", GroupPriorityMinimum: 1, VersionPriority: 1, CABundle: []byte("ca"),
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "api"},
		}}
		row.change(s)
		var obj scheme.Object = s
		kind.Default(obj)
		if got := texts(kind.Validate(obj, nil)); strings.Join(got, "\n") != strings.Join(row.want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
		if name == "valid" && *s.Spec.Service.Port != 443 {
			t.Errorf("port %d", *s.Spec.Service.Port)
		}
	}
	bad := &apiregistrationv1.APIService{Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: "Available", Status: "Maybe", Reason: "R"}}}}
	want := `status.conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"`
	if got := texts(kind.Subresources[0].ValidatePart(bad, bad)); len(got) != 1 || got[0] != want {
		t.Errorf("%q", got)
	}
}
