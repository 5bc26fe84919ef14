package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKubectl uses the cluster with the real kubectl, an old one and one of the version of the
// k8s.io modules: each common command, unmodified.
func TestKubectl(t *testing.T) {
	for _, binary := range []string{"kubectl", "kubectl-debian"} {
		t.Run(binary, func(t *testing.T) {
			k := &kubectl{t: t, path: the.bin("peers/" + binary), namespace: "peer-" + binary}
			k.run("create", "namespace", k.namespace)
			t.Cleanup(func() {
				the.try(context.Background(), "", k.path, "delete", "namespace", k.namespace, "--wait=false")
			})
			k.story()
		})
	}
}

// kubectl is one version of kubectl, in a namespace of its own.
type kubectl struct {
	t         *testing.T
	path      string
	namespace string
}

func (k *kubectl) run(args ...string) string { return k.feed("", args...) }

func (k *kubectl) feed(stdin string, args ...string) string {
	k.t.Helper()
	return the.run(k.t, stdin, k.path, append([]string{"-n", k.namespace}, args...)...)
}

// says runs kubectl and checks that its output contains a text.
func (k *kubectl) says(want string, args ...string) {
	k.t.Helper()
	if got := k.run(args...); !strings.Contains(got, want) {
		k.t.Errorf("kubectl %s printed\n%s\nwithout %q", strings.Join(args, " "), got, want)
	}
}

// start runs kubectl in the background and returns its output line by line.
func (k *kubectl) start(args ...string) (lines *bufio.Scanner, stop func()) {
	k.t.Helper()
	cmd := exec.Command(k.path, append([]string{"-n", k.namespace}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(the.dir, "kubeconfig"), "HOME="+the.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }) // a hung stream ends the scan
	return bufio.NewScanner(out), func() {
		timer.Stop()
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
	}
}

const webManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: localhost/podium/web:v1
          ports: [{name: http, containerPort: 8080}]
          readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: box}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      stdin: true
      command: [sh, -c, 'echo hello from box; while read line; do echo "box heard $line"; done; sleep 3600']
`

func (k *kubectl) story() {
	for _, part := range []struct {
		name string
		run  func(*kubectl)
	}{
		{"apply", (*kubectl).apply},
		{"get", (*kubectl).get},
		{"describe", (*kubectl).describe},
		{"streams", (*kubectl).streams},
		{"copy", (*kubectl).copy},
		{"port-forward", (*kubectl).portForward},
		{"rollout", (*kubectl).rollout},
		{"metadata", (*kubectl).metadata},
		{"discovery", (*kubectl).discovery},
		{"access", (*kubectl).access},
		{"delete", (*kubectl).remove},
	} {
		parent := k.t
		if !parent.Run(part.name, func(t *testing.T) { k.t = t; part.run(k) }) {
			k.t = parent
			parent.FailNow() // the parts build on each other
		}
		k.t = parent
	}
}

func (k *kubectl) apply() {
	k.feed(webManifest, "apply", "-f", "-")
	k.run("rollout", "status", "deployment/web", "--timeout=2m")
	k.run("wait", "pod/box", "--for=condition=Ready", "--timeout=2m")
	if again := k.feed(webManifest, "apply", "-f", "-"); strings.Count(again, "unchanged") != 3 {
		k.t.Errorf("applying the same again printed\n%s", again)
	}
	serverSide := strings.Replace(webManifest, "labels: {app: web}}\nspec:\n  replicas", "labels: {app: web, side: server}}\nspec:\n  replicas", 1)
	if out := k.feed(serverSide, "apply", "--server-side", "--force-conflicts", "-f", "-"); !strings.Contains(out, "deployment.apps/web serverside-applied") || strings.Contains(out, "Warning") {
		k.t.Errorf("server-side apply printed\n%s", out)
	}
	k.says("server", "get", "deployment", "web", "-o", "jsonpath={.metadata.labels.side}")
}

func (k *kubectl) get() {
	k.says("1/1", "get", "pods", "-o", "wide")
	k.says("node-a", "get", "pods", "-o", "wide")
	k.says("kind: Deployment", "get", "deployment", "web", "-o", "yaml")
	k.says(`"kind": "Service"`, "get", "service", "web", "-o", "json")
	k.says("pod/box", "get", "all")
	k.says("box", "get", "pods", "--field-selector=metadata.name=box", "-o", "name")

	lines, stop := k.start("get", "pods", "box", "-w", "-o", "jsonpath={.metadata.labels.watched}{\"\\n\"}")
	defer stop()
	lines.Scan()
	k.run("label", "pod", "box", "watched=yes")
	for lines.Scan() {
		if lines.Text() == "yes" {
			return
		}
	}
	k.t.Error("get -w did not show the change")
}

func (k *kubectl) describe() {
	k.says("Started ", "describe", "pod", "box")
	k.says("NewReplicaSetAvailable", "describe", "deployment", "web")
	k.says("Endpoints:", "describe", "service", "web")
	k.says("Allocated resources", "describe", "node", "node-a")
}

func (k *kubectl) streams() {
	k.says("hello from box", "logs", "box")
	k.says("12", "exec", "box", "--", "sh", "-c", "expr 5 + 7")
	if got := k.feed("ping\n", "exec", "-i", "box", "--", "cat"); got != "ping\n" {
		k.t.Errorf("exec -i cat of ping printed %q", got)
	}
	if _, err := the.try(k.t.Context(), "", k.path, "-n", k.namespace, "exec", "box", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(err.Error(), "7") {
		k.t.Errorf("exec of exit 7 gave %v", err)
	}
	// -t needs a terminal on this side, too: script provides one.
	tty := fmt.Sprintf("%s -n %s exec -it box -- sh -c 'tty; stty size'", k.path, k.namespace)
	if got := the.run(k.t, "", "script", "-qec", tty, "/dev/null"); !strings.Contains(got, "/dev/pts/") {
		k.t.Errorf("exec -it printed %q", got)
	}

	lines, stop := k.start("logs", "-f", "box")
	defer stop()
	k.feed("attached\n", "attach", "-i", "box")
	for lines.Scan() {
		if lines.Text() == "box heard attached" {
			return
		}
	}
	k.t.Error("logs -f did not show what attach sent")
}

func (k *kubectl) copy() {
	dir := k.t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	text := strings.Repeat("all work and no play\n", 10000)
	if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
	k.run("cp", from, "box:/tmp/copied")
	k.run("cp", "box:/tmp/copied", to)
	if got, err := os.ReadFile(to); err != nil || string(got) != text {
		k.t.Errorf("the file came back as %d bytes, %v; want %d", len(got), err, len(text))
	}
}

func (k *kubectl) portForward() {
	lines, stop := k.start("port-forward", "service/web", ":80")
	defer stop()
	if !lines.Scan() {
		k.t.Fatal("port-forward printed nothing")
	}
	_, rest, _ := strings.Cut(lines.Text(), "127.0.0.1:")
	port, _, _ := strings.Cut(rest, " ")
	resp, err := http.Get("http://127.0.0.1:" + port + "/healthz")
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		k.t.Errorf("through the tunnel: %s", resp.Status)
	}
}

func (k *kubectl) rollout() {
	k.run("scale", "deployment/web", "--replicas=3")
	k.run("rollout", "status", "deployment/web", "--timeout=2m")
	before := k.revisions()
	k.run("set", "image", "deployment/web", "web=localhost/podium/web:absent")
	eventually(k.t, 30*time.Second, "a pod of the new image says why it waits", func() error {
		out, err := the.try(k.t.Context(), "", k.path, "-n", k.namespace, "get", "pods")
		if err == nil && !strings.Contains(out, "ImagePullBackOff") && !strings.Contains(out, "ErrImagePull") {
			err = fmt.Errorf("pods are\n%s", out)
		}
		return err
	})
	if now, want := k.revisions(), append(before, before[len(before)-1]+1); !slices.Equal(now, want) {
		k.t.Errorf("rollout history shows the revisions %v, want %v", now, want)
	}
	k.run("rollout", "undo", "deployment/web")
	k.run("rollout", "status", "deployment/web", "--timeout=2m")
	k.says("localhost/podium/web:v1", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	k.run("rollout", "restart", "deployment/web")
	k.run("rollout", "status", "deployment/web", "--timeout=2m")
	k.paused()
}

// revisions returns the revisions in the output of rollout history, in order.
func (k *kubectl) revisions() (all []int) {
	k.t.Helper()
	out := k.run("rollout", "history", "deployment/web")
	for line := range strings.Lines(out) {
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(first); err == nil {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		k.t.Fatalf("rollout history shows no revision:\n%s", out)
	}
	return all
}

// While a rollout is paused, a change of the template is observed and creates no pods; when it
// is resumed, it does.
func (k *kubectl) paused() {
	k.run("rollout", "pause", "deployment/web")
	k.says("true", "get", "deployment", "web", "-o", "jsonpath={.spec.paused}")
	sets := k.run("get", "replicasets", "-l", "app=web", "-o", "name")
	k.run("set", "env", "deployment/web", "TURN=paused")
	eventually(k.t, 30*time.Second, "the change is observed", func() error {
		out := k.run("get", "deployment", "web", "-o", "jsonpath={.metadata.generation} {.status.observedGeneration}")
		if want, got, _ := strings.Cut(out, " "); want != got {
			return fmt.Errorf("generation %s, observed %s", want, got)
		}
		return nil
	})
	if now := k.run("get", "replicasets", "-l", "app=web", "-o", "name"); now != sets {
		k.t.Errorf("while the rollout was paused, the replica sets\n%sbecame\n%s", sets, now)
	}
	k.run("rollout", "resume", "deployment/web")
	k.run("rollout", "status", "deployment/web", "--timeout=2m")
	if now := k.run("get", "replicasets", "-l", "app=web", "-o", "name"); now == sets {
		k.t.Error("after the rollout was resumed there is no new replica set")
	}
	k.says("value: paused", "get", "pods", "-l", "app=web", "-o", "yaml")
}

func (k *kubectl) metadata() {
	k.run("label", "deployment", "web", "tier=front")
	k.run("annotate", "deployment", "web", "note=kept")
	k.says("web", "get", "deployments", "-l", "tier=front")
	k.feed("", "patch", "deployment", "web", "--type=json", "-p", `[{"op":"remove","path":"/metadata/labels/tier"}]`)

	editor := filepath.Join(k.t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/note: kept/note: edited/' \"$1\"\n"), 0o755); err != nil {
		k.t.Fatal(err)
	}
	k.t.Setenv("KUBE_EDITOR", editor)
	k.run("edit", "deployment", "web")
	k.says("edited", "get", "deployment", "web", "-o", "jsonpath={.metadata.annotations.note}")

	changed := strings.Replace(webManifest, "replicas: 2", "replicas: 4", 1)
	out, err := the.try(k.t.Context(), changed, k.path, "-n", k.namespace, "diff", "-f", "-")
	if err == nil || !strings.Contains(out, "+  replicas: 4") {
		k.t.Errorf("diff ended with %v and printed\n%s", err, out)
	}
}

func (k *kubectl) discovery() {
	k.says("deployments", "api-resources")
	k.says("apps/v1", "api-versions")
	k.says("RollingUpdate", "explain", "deployment.spec.strategy")
	k.says("Server Version", "version")
	k.says("Kubernetes control plane", "cluster-info")
}

// A user's permissions follow the roles at once.
func (k *kubectl) access() {
	k.run("create", "role", "reader", "--verb=get,list", "--resource=pods,deployments.apps")
	k.run("create", "rolebinding", "readers", "--role=reader", "--user=joe")
	can := func(want string, args ...string) {
		k.t.Helper()
		out, err := the.try(k.t.Context(), "", k.path, append([]string{"-n", k.namespace, "auth", "can-i", "--as=joe"}, args...)...)
		if strings.TrimSpace(out) != want || (err == nil) != (want == "yes") {
			k.t.Errorf("kubectl auth can-i %s printed %q (%v), want %q", strings.Join(args, " "), out, err, want)
		}
	}
	can("yes", "list", "pods")
	k.says("deployments.apps", "auth", "can-i", "--list", "--as=joe")
	k.says("web", "get", "deployments", "--as=joe")
	refused := func(want string, args ...string) {
		k.t.Helper()
		out, err := the.try(k.t.Context(), "", k.path, append([]string{"-n", k.namespace}, args...)...)
		if err == nil || !strings.Contains(out+err.Error(), want) {
			k.t.Errorf("kubectl %s: %v, want %q", strings.Join(args, " "), err, want)
		}
	}
	can("no", "list", "secrets")
	refused(`User "joe" cannot list resource "secrets" in API group "" in the namespace "`+k.namespace+`"`, "get", "secrets", "--as=joe")
	refused(`User "joe" cannot create resource "rolebindings"`, "create", "rolebinding", "more", "--clusterrole=cluster-admin", "--user=joe", "--as=joe")
	role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: reader, namespace: " + k.namespace + "}\nrules: [{apiGroups: [''], resources: [secrets], verbs: [list]}]\n"
	k.feed(role, "auth", "reconcile", "--remove-extra-permissions", "-f", "-")
	can("yes", "list", "secrets")
	can("no", "list", "pods")
}

func (k *kubectl) remove() {
	k.run("delete", "service", "web")
	background, orphan := "--cascade=background", "--cascade=orphan"
	k.run("delete", "deployment", "web", orphan)
	k.says("web-", "get", "replicasets", "-o", "name")
	names := strings.Fields(k.run("get", "replicasets", "-o", "name"))
	for _, name := range names {
		k.run("delete", name, background)
	}
	eventually(k.t, 60*time.Second, "the pods of deleted replica sets go", func() error {
		out, err := the.try(k.t.Context(), "", k.path, "-n", k.namespace, "get", "pods", "-l", "app=web", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("still there:\n%s", out)
		}
		return err
	})
	k.feed(webManifest, "apply", "-f", "-")
	k.run("delete", "deployment", "web", "--cascade=foreground", "--timeout=2m")
	if out := k.run("get", "replicasets", "-o", "name"); out != "" {
		k.t.Errorf("after a foreground delete there still are\n%s", out)
	}
	k.run("delete", "pod", "box", "--timeout=2m")
}
