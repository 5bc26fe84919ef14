package plugins_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/plugins"
)

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		enable, disable []string
		want            string // of the error; "": no error
	}{
		{enable: []string{"NamespaceLifecycle", "Priority"}, disable: []string{"ServiceAccount"}},
		{enable: []string{"ImagePolicyWebhook"}, want: `enable-admission-plugins plugin "ImagePolicyWebhook" of upstream does not exist in Podium; known: NamespaceLifecycle, LimitRanger, ServiceAccount, NodeRestriction, TaintNodesByCondition`},
		{enable: []string{"Nonsense"}, want: `enable-admission-plugins plugin "Nonsense" is unknown; known: NamespaceLifecycle, LimitRanger, ServiceAccount`},
		{disable: []string{"ServiceAccount", "MutatingAdmissionWebhook"}},
		{disable: []string{"serviceaccount"}, want: `disable-admission-plugins plugin "serviceaccount" is unknown`},
		{enable: []string{"Priority"}, disable: []string{"Priority"}, want: "overlapped"},
	} {
		c := plugins.Config{Enable: tc.enable, Disable: tc.disable}
		err := c.Validate()
		switch on := names(c); {
		case tc.want == "" && (err != nil || !slices.Contains(on, "Priority") || slices.Contains(on, "ServiceAccount")):
			t.Errorf("%v, %v: %v, %v", tc.enable, tc.disable, on, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%v, %v: %v, want %q", tc.enable, tc.disable, err, tc.want)
		}
	}
}

func names(c plugins.Config) (out []string) {
	for _, p := range c.Chain(admission.Host{Now: time.Now}) {
		out = append(out, p.Name)
	}
	return out
}

// The order is upstream's: webhooks, which run after the others, see what they
// have added.
func TestOrder(t *testing.T) {
	const byDefault = "DRAAdminAccess DRAResourceClaimGranularStatusAuthorization NamespaceLifecycle LimitRanger ServiceAccount NodeRestriction TaintNodesByCondition PodSecurity Priority DefaultTolerationSeconds " +
		"EventRateLimit DefaultStorageClass StorageObjectInUseProtection PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning CertificateSubjectRestriction DefaultIngressClass DenyServiceExternalIPs " +
		"MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy ValidatingAdmissionWebhook ResourceQuota"
	if got := strings.Join(names(plugins.Config{}), " "); got != byDefault {
		t.Errorf("on by default: %s", got)
	}
	want := strings.Replace(byDefault, "PodSecurity", "AlwaysPullImages PodSecurity", 1)
	want = strings.Replace(want, "DefaultStorageClass", "ExtendedResourceToleration DefaultStorageClass", 1)
	if got := strings.Join(names(plugins.Config{Enable: []string{"AlwaysPullImages", "ExtendedResourceToleration"}}), " "); got != want {
		t.Errorf("enabled: %s", got)
	}
}

// The preparation of a kind sees what the plugins have added to a pod.
func TestMutationsComeBeforePreparation(t *testing.T) {
	objects := admissiontest.Objects{
		"namespaces/ns":           &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		"serviceaccounts/default": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}},
	}
	admit := func(c plugins.Config, prepare func(corev1.PodSpec)) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Name: "p", Object: pod}
		err := c.Chain(admission.Host{Objects: objects, Now: time.Now}).Admit(t.Context(), a, func() error {
			prepare(pod.Spec)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	admit(plugins.Config{}, func(s corev1.PodSpec) {
		if s.ServiceAccountName != "default" || len(s.Tolerations) != 2 || s.Priority == nil || *s.Priority != 0 || len(s.Volumes) != 1 {
			t.Errorf("prepared %+v", s)
		}
	})
	admit(plugins.Config{Disable: []string{"ServiceAccount", "DefaultTolerationSeconds", "Priority"}}, func(s corev1.PodSpec) {
		if s.ServiceAccountName != "" || len(s.Tolerations) > 0 || s.Priority != nil || len(s.Volumes) > 0 {
			t.Errorf("disabled plugins added something: %+v", s)
		}
	})
}
