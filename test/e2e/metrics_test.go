package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client"
)

// measured is how long it may take until the usage of a pod is known: two samples, 15 s
// apart, and the start of metrics-server on a busy machine.
const measured = 90 * time.Second

const burning = `
apiVersion: v1
kind: Pod
metadata: {name: burn, labels: {app: metrics}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: burner, image: "localhost/podium/busybox:v1", command: [sh, -c, "while :; do :; done"], resources: {limits: {cpu: 300m}}}
    - {name: sleeper, image: "localhost/podium/busybox:v1", command: [sleep, "3600"]}
---
apiVersion: v1
kind: Pod
metadata: {name: idle, labels: {app: metrics}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: sleeper, image: "localhost/podium/busybox:v1", command: [sleep, "3600"]}]
`

// usageLine is a line of top: a name, and the usage of CPU.
var usageLine = regexp.MustCompile(`(?m)^(?:burn +)?(\S+) +(\d+)m +`)

// cores parses the output of top --no-headers: millicores by name.
func cores(text string) map[string]int {
	out := map[string]int{}
	for _, m := range usageLine.FindAllStringSubmatch(text, -1) {
		out[m[1]], _ = strconv.Atoi(m[2])
	}
	return out
}

// TestTop shows what pods and nodes use, by the real kubectl and by podium, to users who
// may know, and while metrics-server is killed. It does not run beside tests that start dozens
// of pods at once: they delay the restart of metrics-server by more than a minute.
func TestTop(t *testing.T) {
	s := newSpace(t)
	s.apply(burning)
	for name, top := range map[string]func(args ...string) (string, error){
		"kubectl": func(args ...string) (string, error) {
			return the.try(t.Context(), "", the.bin("peers/kubectl"), append([]string{"-n", s.name, "top"}, args...)...)
		},
		"podium": func(args ...string) (string, error) {
			return the.try(t.Context(), "", the.bin("podium"), append([]string{"-n", s.name, "top"}, args...)...)
		},
	} {
		t.Run(name, func(t *testing.T) { s.within(t).tops(t, top) })
	}
	if got := the.run(t, "", the.bin("peers/kubectl"), "explain", "podmetrics.containers.usage"); !strings.Contains(got, "GROUP:      metrics.k8s.io") {
		t.Errorf("kubectl explain says\n%s", got)
	}
	t.Run("Rights", func(t *testing.T) { s.within(t).metricsNeedRights(t) })
	t.Run("Kill", func(t *testing.T) { s.within(t).metricsServerIsKilled(t) })
}

func (s *space) tops(t *testing.T, top func(...string) (string, error)) {
	eventually(t, measured, "top pod shows the pod that burns CPU", func() error {
		out, err := top("pod", "--no-headers", "--sort-by=cpu")
		if got := cores(out); err == nil && (got["burn"] < 20 || got["burn"] > 400 || got["idle"] > 10 || !strings.HasPrefix(out, "burn ")) {
			err = errors.New(out)
		}
		return err
	})
	out, err := top("pod", "burn", "--containers", "--no-headers")
	if got := cores(out); err != nil || got["burner"] < 20 || got["sleeper"] > 10 || len(got) != 2 {
		t.Errorf("the containers of burn: %s, %v", out, err)
	}
	if out, err := top("pod", "-l", "app=other"); err == nil && cores(out)["burn"] > 0 {
		t.Errorf("a label that no pod has selects\n%s", out)
	}
	out, err = top("node", "--no-headers")
	if got := cores(out); err != nil || got["node-a"] < 20 || !strings.Contains(out, "%") {
		t.Errorf("top node: %s, %v", out, err)
	}
	if _, err := top("pod", "missing"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a pod that does not exist: %v", err)
	}
}

// metricsNeedRights reads metrics as a service account: first without any role, then
// with the role view.
func (s *space) metricsNeedRights(t *testing.T) {
	s.podium("create", "serviceaccount", "reader")
	as := "--as=system:serviceaccount:" + s.name + ":reader"
	pods := func() (string, error) {
		return the.try(t.Context(), "", the.bin("peers/kubectl"), "-n", s.name, "top", "pod", as)
	}
	if out, err := pods(); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("without rights: %s, %v", out, err)
	}
	s.podium("create", "rolebinding", "readers", "--clusterrole=view", "--serviceaccount="+s.name+":reader")
	eventually(t, 10*time.Second, "who may view the namespace sees what its pods use", func() error {
		out, err := pods()
		if err == nil && cores(out)["burn"] == 0 {
			err = errors.New(out)
		}
		return err
	})
	if out, err := the.try(t.Context(), "", the.bin("peers/kubectl"), "top", "node", as); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("nodes, with rights in one namespace: %s, %v", out, err)
	}
}

// metricsServerIsKilled: metrics-server makes a new certificate when it starts again, and
// API servers verify it.
func (s *space) metricsServerIsKilled(t *testing.T) {
	pods := client.For[*corev1.Pod](s.api).In("kube-system")
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=metrics-server"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pods of metrics-server, %v", len(list.Items), err)
	}
	before := s.registered()
	if err := syscall.Kill(the.containerPID(t, list.Items[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	eventually(t, measured, "metrics of after the kill", func() error {
		body, _, err := s.api.Do(t.Context(), client.Request{Path: "/apis/metrics.k8s.io/v1beta1/namespaces/" + s.name + "/pods/burn"})
		if err != nil {
			return err
		}
		var m metricsv1beta1.PodMetrics
		if err := json.Unmarshal(body, &m); err != nil {
			return err
		}
		if m.Timestamp.Time.Before(killed) || len(m.Containers) != 2 || m.Window.Duration <= 0 {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	t.Logf("metrics were served again after %v", time.Since(killed).Round(time.Second))
	if after := s.registered(); string(after.CABundle) == string(before.CABundle) {
		t.Error("the caBundle has not changed: the certificate is not the process's own")
	}
}

// registered returns the spec of the APIService, which must verify the server.
func (s *space) registered() apiregistrationv1.APIServiceSpec {
	s.Helper()
	a, err := client.For[*apiregistrationv1.APIService](s.api).Get(s.Context(), "v1beta1.metrics.k8s.io")
	if err != nil {
		s.Fatal(err)
	}
	if a.Spec.InsecureSkipTLSVerify || len(a.Spec.CABundle) == 0 {
		s.Errorf("the APIService does not verify metrics-server: %+v", a.Spec)
	}
	return a.Spec
}
