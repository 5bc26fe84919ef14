package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
)

// TestPodium uses the cluster with the podium CLI: each command at least once.
func TestPodium(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	c := &cli{space: s, dir: t.TempDir()}
	for _, part := range []struct {
		name string
		run  func(*cli)
	}{
		{"make", (*cli).make},
		{"look", (*cli).look},
		{"streams", (*cli).streams},
		{"change", (*cli).change},
		{"rollout", (*cli).rollout},
		{"learn", (*cli).learn},
		{"watch", (*cli).watch},
		{"remove", (*cli).remove},
	} {
		ok := t.Run(part.name, func(t *testing.T) { part.run(&cli{s.within(t), c.dir}) })
		if !ok && part.name == "make" {
			t.FailNow() // the other parts use what this one creates
		}
	}
}

type cli struct {
	*space
	dir string
}

// says runs podium and checks that its output matches.
func (c *cli) says(pattern string, args ...string) {
	c.Helper()
	if got := c.podium(args...); !regexp.MustCompile(pattern).MatchString(got) {
		c.Errorf("podium %s printed\n%s\nwhich does not match %q", strings.Join(args, " "), got, pattern)
	}
}

// fails runs podium, which must fail with a text in its error.
func (c *cli) fails(text string, args ...string) {
	c.Helper()
	if out, err := the.try(c.Context(), "", the.bin("podium"), append([]string{"-n", c.name}, args...)...); err == nil || !strings.Contains(err.Error(), text) {
		c.Errorf("podium %s: %v\n%s\nwant a failure that says %q", strings.Join(args, " "), err, out, text)
	}
}

func (c *cli) file(name, text string) string {
	c.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.Fatal(err)
	}
	return path
}

// make creates objects in every possible way: files, folders, stdin, a URL, flags.
func (c *cli) make() {
	parts := strings.Split(webOf(2), "\n---\n")
	c.file("app/deployment.yaml", parts[0])
	c.file("app/service.yaml", parts[1])
	c.says(`(?s)deployment.apps/web created.*service/web created`, "apply", "-f", filepath.Join(c.dir, "app"))
	c.says(`(?s)deployment.apps/web unchanged.*service/web unchanged`, "apply", "-f", filepath.Join(c.dir, "app"))
	listener := strings.Replace(box("box", "while read line; do echo heard $line; done; sleep 3600"), "{name: box, image", "{name: box, stdin: true, image", 1)
	out := the.run(c.T, listener, the.bin("podium"), "-n", c.name, "apply", "-f", "-")
	if out != "pod/box created\n" {
		c.Errorf("apply -f - printed %q", out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(filepath.Dir(c.file("web/more.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: from-url}}"))))}
	go server.Serve(ln)
	defer server.Close()
	c.says(`configmap/from-url created`, "apply", "-f", "http://"+ln.Addr().String()+"/more.yaml")
	c.says(`configmap/from-url unchanged`, "apply", "--server-side", "-f", filepath.Join(c.dir, "web"))
	c.says(`configmap/made created`, "create", "configmap", "made", "--from-literal=a=b")
	c.says(`secret/made created`, "create", "secret", "generic", "made", "--from-literal=a=b")
	c.says(`deployment.apps/idle created`, "create", "deployment", "idle", "--image=localhost/podium/web:v1")
	c.says(`condition met`, "wait", "pod/box", "--for=condition=Ready", "--timeout=2m")
	c.says(`successfully rolled out`, "rollout", "status", "deployment/web", "--timeout=2m")
}

func (c *cli) look() {
	c.says(`(?m)^web +2/2 +2 +2 `, "get", "deployments")
	c.says(`(?m)^box +1/1 +Running +0 .* 10\.244\.[0-9.]+ +node-a`, "get", "pods", "-o", "wide")
	c.says(`(?m)^  name: box$`, "get", "pod", "box", "-o", "yaml")
	c.says(`"name": "box"`, "get", "pod", "box", "-o", "json")
	c.says(`^pod/box\n$`, "get", "pods", "-l", "app=box", "-o", "name")
	c.says(`^Running$`, "get", "pod", "box", "-o", "jsonpath={.status.phase}")
	c.says(`(?m)^kube-system +kube-root-ca.crt `, "get", "configmaps", "-A")
	c.says(`^pod/box\n$`, "get", "pods", "--field-selector=metadata.name=box", "-o", "name")
	c.says(`(?s)Name: +box.*Started`, "describe", "pod", "box")
	c.says(`Allocated resources`, "describe", "node", "node-a")
	c.says(`Started`, "events", "--for", "pod/box")
	c.fails(`pods "none" not found`, "get", "pod", "none")
}

func (c *cli) streams() {
	c.says(`^12\n$`, "exec", "box", "--", "sh", "-c", "expr 5 + 7")
	if got := the.run(c.T, "ping\n", the.bin("podium"), "-n", c.name, "exec", "-i", "box", "--", "cat"); got != "ping\n" {
		c.Errorf("exec -i cat of ping printed %q", got)
	}
	tty := fmt.Sprintf("%s -n %s exec -it box -- sh -c 'tty; stty size'", the.bin("podium"), c.name)
	if got := the.run(c.T, "", "script", "-qec", tty, "/dev/null"); !strings.Contains(got, "/dev/pts/") {
		c.Errorf("exec -it printed %q", got)
	}
	c.fails("7", "exec", "box", "--", "sh", "-c", "exit 7")
	once := []string{"-i", "--rm", "--restart=Never", "--image=localhost/podium/busybox:v1", "--", "sh", "-c"}
	if got := the.run(c.T, "ping\n", the.bin("podium"), append(append([]string{"-n", c.name, "run", "once"}, once...), "cat")...); got != "ping\n" {
		c.Errorf("run -i cat of ping printed %q", got)
	}
	c.deleted("the pod of run --rm", func() error {
		_, err := in[*corev1.Pod](c.space).Get(c.Context(), "once")
		return err
	})
	c.fails("exit code 7", append(append([]string{"run", "failing"}, once...), "exit 7")...)

	text := c.file("copied", strings.Repeat("all work and no play\n", 10000))
	c.podium("cp", text, "box:/tmp/copied")
	c.podium("cp", "box:/tmp/copied", text+".back")
	if out, err := exec.Command("cmp", text, text+".back").CombinedOutput(); err != nil {
		c.Errorf("cp there and back: %s", out)
	}

	c.says(`serves on :8080`, "logs", "deployment/web")
	tunnel := c.background("port-forward", "service/web", ":80")
	port := tunnel.line(`127\.0\.0\.1:(\d+)`)
	if _, err := fromNode(c.T, false).get("http://127.0.0.1:" + port + "/"); err != nil {
		c.Error(err)
	}
}

// job is podium in the background.
type job struct {
	*space
	lines *bufio.Scanner
}

// background starts podium, for at most a minute; it ends with the test.
func (c *cli) background(args ...string) *job {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, the.bin("podium"), append([]string{"-n", c.name}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(the.dir, "kubeconfig"), "HOME="+the.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
		cancel()
	})
	return &job{c.space, bufio.NewScanner(out)}
}

// line waits for a line that matches and returns the pattern's first group.
func (j *job) line(pattern string) string {
	j.Helper()
	want := regexp.MustCompile(pattern)
	var seen []string
	for j.lines.Scan() {
		if m := want.FindStringSubmatch(j.lines.Text()); m != nil {
			return m[len(m)-1]
		}
		seen = append(seen, j.lines.Text())
	}
	j.Fatalf("no line matched %q in\n%s", pattern, strings.Join(seen, "\n"))
	return ""
}

func (c *cli) change() {
	c.says(`deployment.apps/web labeled`, "label", "deployment", "web", "tier=front")
	c.says(`deployment.apps/web annotated`, "annotate", "deployment", "web", "note=kept")
	c.says(`^deployment.apps/web\n$`, "get", "deployments", "-l", "tier=front", "-o", "name")
	c.says(`patched`, "patch", "deployment", "web", "-p", `{"metadata":{"labels":{"tier":null}}}`)
	c.says(`scaled`, "scale", "deployment/web", "--replicas=3")
	c.rolledOut("web")
	changed := c.file("changed.yaml", strings.Split(webOf(4), "\n---\n")[0])
	c.fails(`+  replicas: 4`, "diff", "-f", changed)

	editor := c.file("editor", "#!/bin/sh\nsed -i 's/note: kept/note: edited/' \"$1\"\n")
	if err := os.Chmod(editor, 0o755); err != nil {
		c.Fatal(err)
	}
	the.run(c.T, "", "env", "KUBE_EDITOR="+editor, the.bin("podium"), "-n", c.name, "edit", "deployment", "web")
	c.says(`^edited$`, "get", "deployment", "web", "-o", "jsonpath={.metadata.annotations.note}")
}

func (c *cli) rollout() {
	c.says(`restarted`, "rollout", "restart", "deployment/web")
	c.says(`successfully rolled out`, "rollout", "status", "deployment/web", "--timeout=2m")
	c.says(`(?m)^2 `, "rollout", "history", "deployment/web")
	c.says(`rolled back`, "rollout", "undo", "deployment/web")
	c.says(`successfully rolled out`, "rollout", "status", "deployment/web", "--timeout=2m")
	c.says(`paused`, "rollout", "pause", "deployment/web")
	c.says(`resumed`, "rollout", "resume", "deployment/web")
}

func (c *cli) learn() {
	c.says(`(?m)^deployments +deploy +apps/v1 +true +Deployment`, "api-resources")
	c.says(`(?m)^apps/v1$`, "api-versions")
	c.says(`(?s)KIND: +Deployment.*RollingUpdate`, "explain", "deployment.spec.strategy")
	c.says(`(?i)server version`, "version")
	c.says(`e2e`, "config", "get-contexts")
	c.says(`(?m)^e2e .*`+regexp.QuoteMeta(the.dir), "cluster", "list", "--dir", the.dir)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		c.says(`podium`, "completion", shell)
	}
	c.says(`(?m)^node-a`, "--context", "e2e", "get", "nodes")
	c.fails(`context "none"`, "--context", "none", "get", "nodes")
	c.says(`(?m)^pods\b`, "__complete", "get", "po")
}

// watch checks get -w, logs -f and attach at the same time.
func (c *cli) watch() {
	watch := c.background("get", "pod", "box", "-w")
	logs := c.background("logs", "-f", "box")
	watch.line(`^box .*Running`)
	the.run(c.T, "attached\n", the.bin("podium"), "-n", c.name, "attach", "-i", "box")
	logs.line(`^heard attached$`)
	var both errgroup.Group
	both.Go(func() error {
		_, err := the.try(c.Context(), "", the.bin("podium"), "-n", c.name, "wait", "pod/box", "--for=delete", "--timeout=30s")
		return err
	})
	c.says(`pod "box" deleted`, "delete", "pod", "box")
	watch.line(`^box .*Terminating`)
	if err := both.Wait(); err != nil {
		c.Error(err)
	}
}

func (c *cli) remove() {
	c.says(`(?s)web" deleted.*web" deleted`, "delete", "-f", filepath.Join(c.dir, "app"))
	c.says(`deleted`, "delete", "deployment", "idle", "--cascade=foreground")
	c.says(`deleted`, "delete", "configmaps,secrets", "--all")
	c.fails(`not found`, "get", "deployment", "web")
	eventually(c.T, 30*time.Second, "no pod is left", func() error {
		if out := c.podium("get", "pods", "-o", "name"); out != "" {
			return fmt.Errorf("there are\n%s", out)
		}
		return nil
	})
}
