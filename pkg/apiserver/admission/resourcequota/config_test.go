package resourcequota_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/resourcequota"
)

const configuration = `apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: pods
  matchContains: [requests.cpu]
  matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]
`

// What the configuration limits needs a quota.
func TestLimitedResources(t *testing.T) {
	c, err := resourcequota.ParseConfig([]byte(configuration))
	if err != nil {
		t.Fatal(err)
	}
	quota := func(scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		list := corev1.ResourceList{"requests.cpu": resource.MustParse("1"), "pods": resource.MustParse("1")}
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Scopes: scopes}}
		q.Status = corev1.ResourceQuotaStatus{Hard: list, Used: corev1.ResourceList{"requests.cpu": {}, "pods": {}}}
		return q
	}
	for name, row := range map[string]struct {
		quota *corev1.ResourceQuota
		class string
		cpu   string
		want  string // of the error; "": none
	}{
		"NoQuota":       {nil, "", "1", "insufficient quota to consume: requests.cpu"},
		"NothingUsed":   {nil, "", "0", ""},
		"Covered":       {quota(), "", "1", ""},
		"ClassNoQuota":  {nil, "high", "0", "insufficient quota to match these scopes: [{PriorityClass In [high]}]"},
		"ClassCovered":  {quota(corev1.ResourceQuotaScopePriorityClass), "high", "1", ""},
		"OtherClass":    {nil, "low", "0", ""},
		"ClassNotScope": {quota(), "high", "1", "insufficient quota to match these scopes: [{PriorityClass In [high]}]"},
	} {
		objects := admissiontest.Objects{}
		if row.quota != nil {
			objects["resourcequotas/q"] = row.quota
		}
		plugin := resourcequota.New(admission.Host{Objects: objects, Now: time.Now}, c)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{PriorityClassName: row.class, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(row.cpu)}},
		}}}}
		err := admission.Chain{plugin}.Admit(t.Context(), &admission.Attributes{
			Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Name: "p", Object: pod,
		}, nil)
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case row.want != "" && (err == nil || !strings.HasSuffix(err.Error(), row.want)):
			t.Errorf("%s: %v, want %s", name, err, row.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(configuration))
	f.Add([]byte("apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\nlimitedResources: [{}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := resourcequota.ParseConfig(data)
		if err != nil {
			return
		}
		for _, l := range c.LimitedResources {
			if l.Resource == "" {
				t.Errorf("%+v was accepted", l)
			}
		}
	})
}
