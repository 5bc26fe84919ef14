package apiserver_test

import (
	"strings"
	"testing"
)

// Over WebSocket, exec is a GET: without an additional check, read access would
// suffice.
func TestExecNeedsCreate(t *testing.T) {
	w := start(t, withAccess(t))
	rules := func(verbs string) string {
		return `{"metadata":{"name":"r"},"rules":[{"verbs":[` + verbs + `],"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward","pods/log","nodes/proxy"]}]}`
	}
	must[any](w, 201, "POST", rbacAPI+"clusterroles", jsonType, rules(`"get"`))
	must[any](w, 201, "POST", rbacAPI+"clusterrolebindings", jsonType, binding("b", "ClusterRole", "r", "joe"))
	const pod, node = "/api/v1/namespaces/default/pods/p/", "/api/v1/nodes/n/proxy"
	runs := []string{
		pod + "exec?command=id", pod + "attach", pod + "portforward",
		node + "/exec/default/p/c?command=id", node + "/attach/default/p/c", node + "/portForward/default/p",
		node + "//exec/default/p/c", node + "/./x/../exec/default/p/c", node + "/%65xec/default/p/c",
	}
	looks := []string{pod + "log", node, node + "/metrics", node + "/containerLogs/default/p/exec"}
	for _, path := range runs {
		if got := w.do("GET", path, "", "", "X-User", "joe"); got.Code != 403 || !strings.Contains(message(t, got.Body.Bytes()), `User "joe" cannot create resource`) {
			t.Errorf("who may get %s: %d %s", path, got.Code, got.Body)
		}
	}
	for _, path := range looks {
		if got := w.do("GET", path, "", "", "X-User", "joe"); got.Code == 403 {
			t.Errorf("who may get %s: %d %s", path, got.Code, got.Body)
		}
	}
	must[any](w, 200, "PUT", rbacAPI+"clusterroles/r", jsonType, rules(`"get","create"`))
	for _, path := range runs {
		if got := w.do("GET", path, "", "", "X-User", "joe"); got.Code == 403 {
			t.Errorf("who may get and create %s: %d %s", path, got.Code, got.Body)
		}
	}
	must[any](w, 200, "PUT", rbacAPI+"clusterroles/r", jsonType, rules(`"create"`))
	if got := w.do("GET", runs[0], "", "", "X-User", "joe"); got.Code != 403 {
		t.Errorf("who may create, but not get: %d", got.Code)
	}
}
