package registry_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/registry"
)

func TestDisabledPlugins(t *testing.T) {
	for _, tc := range []struct {
		enable, disable []string
		want            string // the error's; "": none
	}{
		{enable: []string{"NamespaceLifecycle", "Priority"}, disable: []string{"ServiceAccount"}},
		{enable: []string{"ExtendedResourceToleration"}, want: `enable-admission-plugins plugin "ExtendedResourceToleration" of upstream does not exist in Podium; known: NamespaceLifecycle, ServiceAccount, DefaultTolerationSeconds, Priority`},
		{enable: []string{"Nonsense"}, want: `enable-admission-plugins plugin "Nonsense" is unknown; known: NamespaceLifecycle, ServiceAccount`},
		{disable: []string{"ServiceAccount", "MutatingAdmissionWebhook"}},
		{disable: []string{"serviceaccount"}, want: `disable-admission-plugins plugin "serviceaccount" is unknown`},
		{enable: []string{"Priority"}, disable: []string{"Priority"}, want: "overlapped"},
	} {
		off, err := registry.DisabledPlugins(tc.enable, tc.disable)
		switch {
		case tc.want == "" && (err != nil || off.Has(registry.Priority) || !off.Has(registry.ServiceAccount)):
			t.Errorf("%v, %v: %v, %v", tc.enable, tc.disable, off, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%v, %v: %v, want %q", tc.enable, tc.disable, err, tc.want)
		}
	}
}

func TestAPluginThatIsOffDoesNothing(t *testing.T) {
	r := newRig(t, "10.0.0.0/24", registry.PortRange{First: 30000, Last: 30010})
	r.cfg.Disabled = registry.PluginSet{registry.ServiceAccount, registry.DefaultTolerationSeconds, registry.Priority}
	for _, k := range registry.Kinds(r.scheme, r.cfg) {
		if k.Resource != "pods" {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}}
		if err := k.Prepare(t.Context(), nil, pod, nil); err != nil {
			t.Fatal(err)
		}
		if s := pod.Spec; s.ServiceAccountName != "" || len(s.Tolerations) > 0 || s.Priority != nil || len(s.Volumes) > 0 {
			t.Errorf("something was added: %+v", s)
		}
	}
}
