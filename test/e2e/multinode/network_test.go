package multinode

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// web is a Deployment of the example's program with a pod on each worker, and its Service on a
// port of every node.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: # gone from a lost node in seconds
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
      - name: web
        image: localhost/podium/web:v1
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`

// pinned returns a pod bound to a node.
func pinned(name, node, image string, command ...string) string {
	for i := range command {
		command[i] = strconv.Quote(command[i])
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: %q, imagePullPolicy: Never, command: [%s]}]
`, name, node, image, strings.Join(command, ", "))
}

// space is a test's namespace on a cluster.
type space struct{ *docked.Space }

func (c cluster) space(t *testing.T) *space {
	t.Helper()
	return &space{c.Space(t)}
}

// get requests a page from a web server, each time on a new connection.
func get(ctx context.Context, host string, port int) (string, error) {
	return fetch(ctx, "http://"+net.JoinHostPort(host, strconv.Itoa(port))+"/")
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(text)), err
}

func TestNodesAreReadyAndHaveTheirRoles(t *testing.T) {
	list, err := client.For[*corev1.Node](the.Client(t)).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	cidrs := map[string]string{}
	for _, n := range list.Items {
		_, isPlane := n.Labels["node-role.kubernetes.io/control-plane"]
		got[n.Name] = isPlane
		if tainted := len(n.Spec.Taints) > 0; tainted != isPlane {
			t.Errorf("%s: taints %v: want one on the control plane only", n.Name, n.Spec.Taints)
		}
		if other := cidrs[n.Spec.PodCIDR]; other != "" {
			t.Errorf("%s and %s share the range %s", other, n.Name, n.Spec.PodCIDR)
		}
		cidrs[n.Spec.PodCIDR] = n.Name
	}
	if len(got) != 3 || !got[plane] || got[worker1] || got[worker2] {
		t.Errorf("nodes and whether they are the control plane: %v", got)
	}
}

func TestTheExampleAnswersFromAllNodes(t *testing.T) {
	s := the.space(t)
	s.Apply(web)
	s.RolledOut("web", time.Minute)
	port := s.NodePort("web")
	for _, node := range []string{plane, worker1, worker2} {
		seen := map[string]bool{}
		docked.Eventually(t, 20*time.Second, "both pods have answered by "+node, func(ctx context.Context) error {
			name, err := get(ctx, s.Address(node), port)
			if err == nil {
				seen[name] = true
			}
			if len(seen) < 2 {
				return fmt.Errorf("seen so far: %v; %v", seen, err)
			}
			return nil
		})
	}
}

// Every pod reaches every other by its address, on its own node and on others, and its peer
// sees its own address.
func TestPodsReachEachOtherAcrossNodesWithoutNAT(t *testing.T) {
	s := the.space(t)
	names := map[string]string{"a": worker1, "b": worker2, "c": worker1, "d": plane}
	for name, node := range names {
		s.Apply(pinned(name, node, "localhost/podium/web:v1", "/web"))
	}
	address := map[string]string{}
	for name := range names {
		address[name] = s.Ready(name).Status.PodIP
	}
	for from := range names {
		for to := range names {
			docked.Eventually(t, 10*time.Second, fmt.Sprintf("%s on %s has answered %s on %s", to, names[to], from, names[from]), func(context.Context) error {
				out, err := s.Exec(from, "/web", "get", "http://"+address[to]+":8080/client")
				if err == nil && out != address[from] {
					err = fmt.Errorf("%s (%s) was seen as %s by %s", from, address[from], out, to)
				}
				return err
			})
		}
	}
}

func TestNamesAreServedOnEveryNode(t *testing.T) {
	s := the.space(t)
	s.Apply(web)
	s.Apply(pinned("asker", worker1, "localhost/podium/web:v1", "/web"))
	s.Apply(pinned("asker2", worker2, "localhost/podium/web:v1", "/web"))
	s.RolledOut("web", time.Minute)
	for _, asker := range []string{"asker", "asker2"} {
		s.Ready(asker)
		for _, host := range []string{"web", "web." + s.Namespace + ".svc.cluster.local"} {
			docked.Eventually(t, 10*time.Second, asker+" has found "+host, func(context.Context) error {
				out, err := s.Exec(asker, "/web", "get", "http://"+host+"/")
				if err == nil && !strings.HasPrefix(out, "web-") {
					err = fmt.Errorf("answered by %q", out)
				}
				return err
			})
		}
	}
}
