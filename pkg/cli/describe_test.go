package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A user may see an object but neither its events nor the pods on it.
func TestDescribeWithoutRightsToRelatedObjects(t *testing.T) {
	f := newFront(t)
	file := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must("apply", "-f", file)
	for name, row := range map[string]struct{ resource, want, without string }{
		"Events": {"/events", "Non-terminated Pods:", "Events:"},
		"Pods":   {"/pods", "\nPods:", "Non-terminated Pods:"},
	} {
		t.Run(name, func(t *testing.T) {
			f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				return strings.HasSuffix(r.URL.Path, row.resource) && refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
			})
			out, errs, code := f.run("describe", "node", "n1")
			if code != 0 || !strings.Contains(out, "n1") || !strings.Contains(out, row.want) || strings.Contains(out, row.without) {
				t.Errorf("exit code %d, want %q and no %q\n%s%s", code, row.want, row.without, out, errs)
			}
		})
	}
}

// A user who may write an object must not control the terminal of one who reads it.
func TestWhatIsShownCannotControlTheTerminal(t *testing.T) {
	f := newFront(t)
	file := filepath.Join(t.TempDir(), "evil.yaml")
	const objects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {note: "a\e[2Jb"}}, data: {key: "a\e[2Jb"}}
---
{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {kind: ConfigMap, name: c, namespace: default}, type: Warning, reason: "a\e[2Jb", message: "a\e[2Jb"}`
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must("create", "-f", file)
	for _, args := range [][]string{
		{"describe", "configmap", "c"},
		{"events"},
		{"get", "events"},
		{"get", "configmap", "c", "-o", "custom-columns=KEY:.data.key"},
	} {
		out, errs, code := f.run(args...)
		if code != 0 || strings.Contains(out, "\x1b") || !strings.Contains(out, `a\x1b[2Jb`) {
			t.Errorf("podium %v: exit code %d\n%q\n%s", args, code, out, errs)
		}
	}
}
