package deviceadmin_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/deviceadmin"
	"podium/pkg/scheme"
)

func spec(admin *bool) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "either", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "a"}}},
		{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: admin}},
	}}}
}

func claim(namespace string, admin, allocated *bool) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}, Spec: spec(admin)}
	if allocated != nil {
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{AdminAccess: allocated}}}}
	}
	return c
}

// Administrative access needs the label of the namespace, when it is asked for and when it is given.
func TestAdminAccessNeedsTheNamespacesLabel(t *testing.T) {
	yes, no := new(true), new(false)
	objects := admissiontest.Objects{}
	for name, label := range map[string]string{"tools": "true", "tenant": "", "almost": "yes"} {
		objects["namespaces/"+name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: label}}}
	}
	template := func(namespace string) *resourcev1.ResourceClaimTemplate {
		return &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec(yes)}}
	}
	for name, row := range map[string]struct {
		operation admission.Operation
		object    scheme.Object
		old       scheme.Object
		refused   string // the field
	}{
		"allowed":            {operation: admission.Create, object: claim("tools", yes, nil)},
		"no label":           {operation: admission.Create, object: claim("tenant", yes, nil), refused: "spec.devices.requests[1].exactly.adminAccess"},
		"other value":        {operation: admission.Create, object: claim("almost", yes, nil), refused: "spec.devices.requests[1].exactly.adminAccess"},
		"not asked":          {operation: admission.Create, object: claim("tenant", no, nil)},
		"template":           {operation: admission.Create, object: template("tenant"), refused: "spec.spec.devices.requests[1].exactly.adminAccess"},
		"template allowed":   {operation: admission.Create, object: template("tools")},
		"given":              {operation: admission.Update, object: claim("tenant", no, yes), old: claim("tenant", no, nil), refused: "status.allocation.devices.results[0].adminAccess"},
		"given, allowed":     {operation: admission.Update, object: claim("tools", yes, yes), old: claim("tools", yes, nil)},
		"had it before":      {operation: admission.Update, object: claim("tenant", yes, yes), old: claim("tenant", yes, yes)},
		"allocated normally": {operation: admission.Update, object: claim("tenant", yes, no), old: claim("tenant", yes, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			a := &admission.Attributes{
				Operation: row.operation, Resource: resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
				Namespace: row.object.GetNamespace(), Object: row.object, Old: row.old,
			}
			err := (admission.Chain{deviceadmin.New(admission.Host{Objects: objects})}).Admit(t.Context(), a, nil)
			if row.refused == "" && err != nil || row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused+": Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace")) {
				t.Errorf("%v, want %q refused", err, row.refused)
			}
		})
	}
}
