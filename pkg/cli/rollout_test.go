package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// An undone deployment has the annotations of the restored revision: the history must
// not show the cause of the change that was undone.
func TestUndoRestoresAnnotations(t *testing.T) {
	f := newFront(t)
	file := filepath.Join(t.TempDir(), "web.yaml")
	create := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.must("create", "-f", file)
	}
	spec := func(number int) string {
		return fmt.Sprintf(`{selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "web:%d"}]}}}`, number)
	}
	create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {kubernetes.io/change-cause: bad, deployment.kubernetes.io/revision: "2", only: now}}, spec: ` + spec(2) + `}`)
	uid, _, _ := f.run("get", "deployment", "web", "-o", "jsonpath={.metadata.uid}")
	for number, cause := range map[int]string{1: "good", 2: "bad"} {
		create(fmt.Sprintf(`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-%[1]d, labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: %[2]s, controller: true}],
  annotations: {kubernetes.io/change-cause: %[3]s, deployment.kubernetes.io/revision: "%[1]d", deployment.kubernetes.io/desired-replicas: "1"}}, spec: %[4]s}`, number, uid, cause, spec(number)))
	}
	f.must("rollout", "undo", "deployment/web")
	out, _, _ := f.run("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image} {.metadata.annotations}")
	if want := `web:1 {"deployment.kubernetes.io/revision":"2","kubernetes.io/change-cause":"good"}`; out != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}
