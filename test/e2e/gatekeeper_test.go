package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const gatekeeperImage = "localhost/podium/gatekeeper:v1"

// ownerRequired is a policy: ConfigMaps with the label checked need an owner. The engine
// makes a kind of the template, of which the constraint is an object. The mutation adds a
// label to ConfigMaps.
const (
	ownerTemplate = `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: ownerrequired}
spec:
  crd: {spec: {names: {kind: OwnerRequired}, validation: {openAPIV3Schema: {type: object, properties: {label: {type: string}}}}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package ownerrequired
        violation[{"msg": msg}] {
          not input.review.object.metadata.labels[input.parameters.label]
          msg := sprintf("needs the label %v", [input.parameters.label])
        }
`
	ownerConstraint = `
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: OwnerRequired
metadata: {name: configmaps}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [ConfigMap]}], labelSelector: {matchLabels: {checked: "yes"}}}
  parameters: {label: owner}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: mutated}
spec:
  match: {scope: Namespaced, kinds: [{apiGroups: [""], kinds: [ConfigMap]}]}
  location: metadata.labels.mutated
  parameters: {assign: {value: "yes"}}
`
)

// checkedMap is a ConfigMap that the policy is about.
func checkedMap(name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {checked: \"yes\"%s}}\n", name, labels)
}

// A policy engine runs from its own manifest, with its own account: it makes certificates
// for its webhooks, kinds of templates, refuses and changes objects, and reports in the
// status of a policy what was there before. Its webhooks are about all kinds, so no other
// test runs beside it.
func TestGatekeeper(t *testing.T) {
	if _, err := os.Stat(the.bin("peers/gatekeeper.tar")); err != nil {
		t.Skip("there is no image of the engine: hack/peers gatekeeper builds it, make soak runs this")
	}
	s := newSpace(t)
	manifest := installGatekeeper(t)
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		return the.run(t, stdin, the.bin("peers/kubectl"), args...)
	}
	s.apply(checkedMap("before", ""))
	t.Cleanup(func() { // t's context has ended
		remove(t, "--wait=false", "ownerrequired,assignmetadata,constrainttemplate", "--all")
	})
	kubectl(manifest, "apply", "--server-side", "-f", "-")
	for _, name := range []string{"gatekeeper-controller-manager", "gatekeeper-audit"} {
		eventually(t, 5*time.Minute, name+" is rolled out", func() error { // the certificates come into volumes that are mounted
			_, err := the.try(t.Context(), "", the.bin("peers/kubectl"), "-n", "gatekeeper-system", "rollout", "status", "deployment/"+name, "--timeout=100s")
			return err
		})
	}
	kubectl(ownerTemplate, "apply", "-f", "-")
	eventually(t, time.Minute, "the template's kind is served", func() error {
		_, err := the.try(t.Context(), ownerConstraint, the.bin("peers/kubectl"), "apply", "-f", "-")
		return err
	})
	eventually(t, time.Minute, "the policy refuses", func() error {
		out, err := the.try(t.Context(), checkedMap("refused", ""), the.bin("peers/kubectl"), "-n", s.name, "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), `admission webhook "validation.gatekeeper.sh" denied the request: [configmaps] needs the label owner`) {
			return fmt.Errorf("%s, %v", out, err)
		}
		return nil
	})
	s.apply(checkedMap("owned", ", owner: a"))
	eventually(t, time.Minute, "the mutation adds its label", func() error {
		kubectl("", "-n", s.name, "annotate", "--overwrite", "configmap", "owned", "again=now")
		if got := s.podium("get", "configmap", "owned", "-o", "jsonpath={.metadata.labels.mutated}"); got != "yes" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	eventually(t, 3*time.Minute, "the audit finds what was there before", func() error {
		got := s.podium("get", "ownerrequired", "configmaps", "-o", "jsonpath={.status.violations[*].name}")
		if got != "before" {
			return fmt.Errorf("it finds %q", got)
		}
		return nil
	})
}

// installGatekeeper imports the image of the engine and returns its manifest for that
// image. All that the manifest makes is deleted after the test.
func installGatekeeper(t *testing.T) string {
	t.Helper()
	importImage(t, "gatekeeper")
	text, err := os.ReadFile(the.bin("peers/gatekeeper.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	images := 0
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "image: openpolicyagent/gatekeeper:"):
			lines[i] = indent + "image: " + gatekeeperImage
			images++
		case strings.TrimSpace(line) == "imagePullPolicy: Always":
			lines[i] = indent + "imagePullPolicy: IfNotPresent"
		case strings.TrimSpace(line) == "- --operation=audit":
			lines[i] += "\n" + indent + "- --audit-interval=5" // instead of 60 s
		}
	}
	if images == 0 {
		t.Fatal("the manifest names no image")
	}
	manifest := strings.Join(lines, "\n")
	t.Cleanup(func() {
		cmd := exec.Command(the.bin("peers/kubectl"), "--kubeconfig", the.dir+"/kubeconfig", "delete", "--ignore-not-found", "--timeout=100s", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("delete the policy engine: %v\n%s", err, out)
		}
	})
	return manifest
}
