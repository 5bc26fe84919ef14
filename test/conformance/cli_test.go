package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubectlFile is the real kubectl; hack/peers builds it.
const kubectlFile = "../../bin/peers/kubectl"

// commandLine returns the rows of the area cli.
func commandLine() []testcase {
	return []testcase{
		{id: "kubectl-logs-filter", test: logsFilter},
		{id: "kubectl-label", test: kubectlLabel},
		{id: "kubectl-replace", test: kubectlReplace},
		{id: "kubectl-dry-run-server", test: kubectlDryRun},
		{id: "kubectl-run-pod", test: kubectlRun},
		{id: "kubectl-diff", test: kubectlDiff},
		{id: "kubectl-proxy-unix-socket", test: proxyUnixSocket},
		{id: "kubectl-proxy-port-zero", test: proxyPortZero},
		{id: "kubectl-guestbook", test: guestbook},
		{id: "kubectl-update-demo-create", test: updateDemoCreate},
		{id: "kubectl-update-demo-scale", test: updateDemoScale},
		{id: "kubectl-describe", test: kubectlDescribe},
		{id: "kubectl-expose", test: kubectlExpose},
		{id: "kubectl-patch-annotate", test: kubectlAnnotate},
		{id: "kubectl-version", test: kubectlVersion},
		{id: "kubectl-api-versions", test: kubectlPrints(`(?m)^v1$`, "api-versions")},
		{id: "kubectl-cluster-info", test: kubectlPrints(`Kubernetes control plane.* is running at .*https://`, "cluster-info")},
	}
}

// kubectl runs the real kubectl in a namespace, wants it to succeed, and returns
// what it prints to standard output.
func kubectl(t *testing.T, ctx context.Context, namespace, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(ctx, namespace, stdin, args...)
	check(t, err)
	return out
}

// tryKubectl is kubectl for commands that may fail.
func tryKubectl(ctx context.Context, namespace, stdin string, args ...string) (string, error) {
	cmd := osexec.CommandContext(ctx, kubectlFile, append([]string{"--namespace", namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

func kubectlPrints(pattern string, args ...string) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		if out := kubectl(t, ctx, namespace, "", args...); !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("want a match of %s in:\n%s", pattern, out)
		}
	}
}

// logsFilter prints 20 lines and, as long as the pod runs, no more.
func logsFilter(t *testing.T, ctx context.Context, namespace string) {
	const lines = 20
	pod := sleeper(namespace, "talker")
	pod.Spec.Containers[0].Command = []string{"sh", "-c", fmt.Sprintf("for i in $(seq %d); do echo line-$i; done; sleep 3600", lines)}
	run(t, ctx, pod)
	logs := func(args ...string) string {
		return kubectl(t, ctx, namespace, "", append([]string{"logs", "talker"}, args...)...)
	}
	eventually(t, ctx, "all lines are in the log", func() error {
		if out := logs(); strings.Count(out, "\n") != lines {
			return fmt.Errorf("the log is %q", out)
		}
		return nil
	})
	if got := logs("--tail=1"); got != fmt.Sprintf("line-%d\n", lines) {
		t.Errorf("--tail=1 prints %q", got)
	}
	if got := logs("--limit-bytes=1"); got != "l" {
		t.Errorf("--limit-bytes=1 prints %q", got)
	}
	stamp, text, _ := strings.Cut(strings.TrimSpace(logs("--tail=1", "--timestamps")), " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || text != fmt.Sprintf("line-%d", lines) {
		t.Errorf("--timestamps prints %q before %q: %v", stamp, text, err)
	}
	time.Sleep(2500 * time.Millisecond) // the lines must be older than --since=1s
	if got := strings.Count(logs("--since=1s"), "\n"); got != 0 {
		t.Errorf("--since=1s prints %d lines", got)
	}
	if got := strings.Count(logs("--since=24h"), "\n"); got != lines {
		t.Errorf("--since=24h prints %d lines, want %d", got, lines)
	}
}

func kubectlLabel(t *testing.T, ctx context.Context, namespace string) {
	run(t, ctx, sleeper(namespace, "pod"))
	kubectl(t, ctx, namespace, "", "label", "pods", "pod", "testing-label=testing-label-value")
	for _, args := range [][]string{{"get", "pod", "pod", "-L", "testing-label"}, {"get", "pod", "-l", "testing-label", "-L", "testing-label"}} {
		if out := kubectl(t, ctx, namespace, "", args...); !strings.Contains(out, "testing-label-value") {
			t.Errorf("%v does not show the label:\n%s", args, out)
		}
	}
	kubectl(t, ctx, namespace, "", "label", "pods", "pod", "testing-label-")
	if out := kubectl(t, ctx, namespace, "", "get", "pod", "pod", "-L", "testing-label"); strings.Contains(out, "testing-label-value") {
		t.Errorf("the label is still there:\n%s", out)
	}
}

func kubectlReplace(t *testing.T, ctx context.Context, namespace string) {
	run(t, ctx, sleeper(namespace, "pod"))
	text := kubectl(t, ctx, namespace, "", "get", "pod", "pod", "-o", "json")
	kubectl(t, ctx, namespace, strings.Replace(text, fmt.Sprintf("%q: %q", "image", busybox), fmt.Sprintf("%q: %q", "image", web), 1), "replace", "-f", "-")
	imageIs(t, ctx, namespace, web)
}

func kubectlDryRun(t *testing.T, ctx context.Context, namespace string) {
	run(t, ctx, sleeper(namespace, "pod"))
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":%q}]}}`, web)
	if out := kubectl(t, ctx, namespace, "", "patch", "pod", "pod", "-p", patch, "--dry-run=server"); !strings.Contains(out, "pod/pod patched") {
		t.Errorf("kubectl prints %q", out)
	}
	imageIs(t, ctx, namespace, busybox)
}

// imageIs checks the stored pod.
func imageIs(t *testing.T, ctx context.Context, namespace, want string) {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, "pod", metav1.GetOptions{})
	check(t, err)
	if got := pod.Spec.Containers[0].Image; got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
}

func kubectlRun(t *testing.T, ctx context.Context, namespace string) {
	kubectl(t, ctx, namespace, "", "run", "pod", "--restart=Never", "--image="+web)
	list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the pods are %+v", list.Items)
	}
	imageIs(t, ctx, namespace, web)
}

func kubectlDiff(t *testing.T, ctx context.Context, namespace string) {
	const manifest = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":%q}]}}}}`
	kubectl(t, ctx, namespace, fmt.Sprintf(manifest, busybox), "create", "-f", "-")
	out, err := tryKubectl(ctx, namespace, fmt.Sprintf(manifest, web), "diff", "-f", "-")
	var exit *osexec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("kubectl diff: %v, want exit code 1", err)
	}
	for _, want := range []string{`(?m)^-\s*(- )?image: ` + busybox + `$`, `(?m)^\+\s*(- )?image: ` + web + `$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want a match of %s in:\n%s", want, out)
		}
	}
}

func proxyUnixSocket(t *testing.T, ctx context.Context, _ string) {
	dir, err := os.MkdirTemp("", "proxy") // short: a socket's path has at most 107 characters
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	startProxy(t, ctx, "--unix-socket="+socket)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	// The proxy serves requests for localhost only.
	servesVersions(t, ctx, &http.Client{Transport: &http.Transport{DialContext: dial}}, "http://localhost/api/")
}

func proxyPortZero(t *testing.T, ctx context.Context, _ string) {
	said := startProxy(t, ctx, "--port=0", "--disable-filter")
	at := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindString(said)
	if at == "" {
		t.Fatalf("kubectl proxy prints no port: %q", said)
	}
	servesVersions(t, ctx, http.DefaultClient, "http://"+at+"/api/")
}

// startProxy starts kubectl proxy until the test ends, and returns the first
// line that it prints: it listens then.
func startProxy(t *testing.T, ctx context.Context, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	cmd := osexec.CommandContext(ctx, kubectlFile, append([]string{"proxy"}, args...)...)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { cancel(); cmd.Wait() })
	line := make([]byte, 200)
	n, err := out.Read(line)
	check(t, err)
	return string(line[:n])
}

func servesVersions(t *testing.T, ctx context.Context, client *http.Client, url string) {
	t.Helper()
	var got metav1.APIVersions
	eventually(t, ctx, "the proxy answers", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return json.Unmarshal(body, &got)
	})
	if len(got.Versions) == 0 {
		t.Errorf("no version in %+v", got)
	}
}
