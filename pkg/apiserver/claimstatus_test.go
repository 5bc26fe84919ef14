package apiserver_test

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

// The permission for the status of claims is not enough to allocate devices, or to speak
// for a driver.
func TestPartsOfClaimStatusNeedPermissions(t *testing.T) {
	w := start(t, withAccess(t))
	const path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	const status = `{"verbs":["patch"],"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/status"]}`
	give := func(user, more string) {
		must[any](w, 201, "POST", rbacAPI+"clusterroles", jsonType, `{"metadata":{"name":"`+user+`"},"rules":[`+status+more+`]}`)
		must[any](w, 201, "POST", rbacAPI+"clusterrolebindings", jsonType, binding(user, "ClusterRole", user, user))
	}
	give("nobody", "")
	give("binder", `,{"verbs":["patch"],"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/binding"]}`)
	give("driver", `,{"verbs":["arbitrary-node:patch"],"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/driver"],"resourceNames":["gpu.example.com"]}`)
	must[resourcev1.ResourceClaim](w, 201, "POST", path, jsonType, `{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu"}}]}}}`)
	result := func(driver string) string {
		return `{"request":"r","driver":"` + driver + `","pool":"p","device":"d"}`
	}
	entry := func(driver string) string {
		return `{"status":{"devices":[{"driver":"` + driver + `","pool":"p","device":"d"}]}}`
	}
	allocation := `{"status":{"allocation":{"devices":{"results":[` + result("gpu.example.com") + `,` + result("nic.example.com") + `]}}}}`
	for _, row := range []struct {
		name, user, body string
		code             int
	}{
		{"allocate", "nobody", allocation, 422},
		{"allocate", "driver", allocation, 422},
		{"allocate", "binder", allocation, 200},
		{"report", "nobody", entry("gpu.example.com"), 422},
		{"report", "binder", entry("gpu.example.com"), 422},
		{"report for another", "driver", entry("nic.example.com"), 422},
		{"report", "driver", entry("gpu.example.com"), 200},
		{"deallocate", "driver", `{"status":{"allocation":null}}`, 422},
		{"deallocate", "binder", `{"status":{"allocation":null}}`, 200},
	} {
		rec := w.do("PATCH", path+"/c/status", mergeType, row.body, "X-User", row.user)
		if rec.Code != row.code {
			t.Errorf("%s by %s: %d, want %d: %s", row.name, row.user, rec.Code, row.code, rec.Body)
		}
		if row.code == 422 && !strings.Contains(message(t, rec.Body.Bytes()), `permission: resourceclaims.resource.k8s.io`) {
			t.Errorf("%s by %s: %s", row.name, row.user, rec.Body)
		}
	}
	if c := must[resourcev1.ResourceClaim](w, 200, "GET", path+"/c", "", ""); c.Status.Allocation != nil || len(c.Status.Devices) != 0 {
		t.Errorf("after it was deallocated: %+v", c.Status)
	}
}
