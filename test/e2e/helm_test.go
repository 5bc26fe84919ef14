package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// chart contains the files of a chart with a Deployment, a Service and a ConfigMap.
var chart = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"values.yaml": "replicas: 1\ngreeting: hello\n",
	"templates/app.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {greeting: {{ .Values.greeting | quote }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - name: web
        image: localhost/podium/web:v1
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80, targetPort: http}]}
`,
}

func writeChart(t *testing.T, dir string) {
	t.Helper()
	for name, text := range chart {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A kustomization may hold a chart, which the real Helm renders.
func TestKustomizationWithAChart(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	writeChart(t, filepath.Join(dir, "charts", "web"))
	text := "helmCharts: [{name: web, releaseName: app, valuesInline: {greeting: inline}}]\nnamePrefix: my-\nnamespace: " + s.name + "\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.apply(s.podium("kustomize", dir, "--enable-helm", "--helm-command", the.bin("peers/helm")))
	c, err := client.For[*corev1.ConfigMap](s.api).In(s.name).Get(t.Context(), "my-app")
	if err != nil || c.Data["greeting"] != "inline" {
		t.Errorf("%v, %v", c, err)
	}
	s.rolledOut("my-app")
	if out, err := the.try(t.Context(), "", the.bin("podium"), "kustomize", dir); err == nil || !strings.Contains(err.Error(), "must specify --enable-helm") {
		t.Errorf("without the flag: %s, %v", out, err)
	}
}

// TestHelm installs a chart with the real Helm, upgrades it, rolls it back and uninstalls it.
// Helm waits for the objects each time.
func TestHelm(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	writeChart(t, dir)
	helm := func(args ...string) string {
		t.Helper()
		return the.run(t, "", the.bin("peers/helm"), append(args, "--namespace", s.name)...)
	}
	released := func(greeting string, replicas int) {
		t.Helper()
		c, err := client.For[*corev1.ConfigMap](s.api).In(s.name).Get(t.Context(), "app")
		if err != nil {
			t.Fatal(err)
		}
		if c.Data["greeting"] != greeting {
			t.Errorf("the greeting is %q, want %q", c.Data["greeting"], greeting)
		}
		if d := s.rolledOut("app"); int(d.Status.ReadyReplicas) != replicas {
			t.Errorf("%d replicas are ready, want %d", d.Status.ReadyReplicas, replicas)
		}
		fromNode(t, false).answers(t, s.url("app"), replicas)
	}
	helm("install", "app", dir, "--wait", "--timeout", "90s")
	released("hello", 1)
	helm("upgrade", "app", dir, "--set", "replicas=2,greeting=goodbye", "--wait", "--timeout", "90s")
	released("goodbye", 2)
	helm("rollback", "app", "1", "--wait", "--timeout", "90s")
	released("hello", 1)

	var history []struct {
		Revision int
		Status   string
	}
	if err := json.Unmarshal([]byte(helm("history", "app", "-o", "json")), &history); err != nil {
		t.Fatal(err)
	}
	if len(history) != 3 || history[2].Status != "deployed" || history[1].Status != "superseded" {
		t.Errorf("the history is %+v", history)
	}
	helm("uninstall", "app", "--wait", "--timeout", "90s")
	if _, err := client.For[*corev1.Service](s.api).In(s.name).Get(t.Context(), "app"); !apierrors.IsNotFound(err) {
		t.Errorf("the service after the uninstallation: %v", err)
	}
	secrets, err := client.For[*corev1.Secret](s.api).In(s.name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		if strings.HasPrefix(string(secret.Type), "helm.sh/") {
			t.Errorf("the release's secret %s is still there", secret.Name)
		}
	}
}
