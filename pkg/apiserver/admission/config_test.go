package admission

import "testing"

// FuzzParseConfig checks that a file that parses has a name and a configuration
// for each plugin.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- {name: PodSecurity, configuration: {kind: x}}\n"))
	f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: a, path: b}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		plugins, err := parseConfig(data)
		if err != nil {
			return
		}
		for _, p := range plugins {
			if p.Name == "" || (p.Path == "") == (p.Configuration == nil) {
				t.Errorf("%+v was let through", p)
			}
		}
	})
}
