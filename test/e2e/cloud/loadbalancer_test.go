package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/test/e2e/docked"
)

// app is a pod of the example's program on each of some nodes, behind a Service of type
// LoadBalancer. The pods stay on a lost node, so that the test loses the announcing node only.
const app = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {type: LoadBalancer, externalTrafficPolicy: %[2]s, selector: {app: %[1]s}, ports: [{port: 80, targetPort: 8080}]}
`

const pod = `
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]s, labels: {app: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
  - {name: web, image: "localhost/podium/web:v1", readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
`

// balancer is a Service of type LoadBalancer with its address.
type balancer struct {
	cluster
	t       *testing.T
	name    string
	address string
	api     *client.Client
}

func (c cluster) balancer(t *testing.T, name, policy string, nodes ...string) *balancer {
	t.Helper()
	b := &balancer{cluster: c, t: t, name: name, api: c.Client(t)}
	text := fmt.Sprintf(app, name, policy)
	for _, n := range nodes {
		text += fmt.Sprintf(pod, name, n)
	}
	c.Feed(t, text, "apply", "-f", "-")
	t.Cleanup(func() {
		args := []string{"delete", "service/" + name, "--ignore-not-found", "--timeout", "1m"}
		if _, err := c.Try(context.Background(), "", args...); err != nil {
			t.Error(err)
		}
		if _, err := c.Try(context.Background(), "", "delete", "pods", "-l", "app="+name, "--timeout", "1m"); err != nil {
			t.Error(err)
		}
	})
	docked.Eventually(t, 30*time.Second, name+" has an address", func(ctx context.Context) error {
		s, err := b.service(ctx)
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("no address yet")
		}
		b.address = s.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	t.Logf("%s has %s", name, b.address)
	return b
}

func (b *balancer) service(ctx context.Context) (*corev1.Service, error) {
	return client.For[*corev1.Service](b.api).In("default").Get(ctx, b.name)
}

// answers waits until the Service answers the host at its address.
func (b *balancer) answers(patience time.Duration) {
	b.t.Helper()
	docked.Eventually(b.t, patience, b.name+" answers at "+b.address, func(ctx context.Context) error {
		_, err := get(ctx, b.address, "/")
		return err
	})
}

// holder returns the node that announces the address.
func (b *balancer) holder(ctx context.Context) (string, error) {
	l, err := client.For[*coordinationv1.Lease](b.api).In(addresslease.Namespace).Get(ctx, addresslease.Name(netip.MustParseAddr(b.address)))
	if err != nil {
		return "", err
	}
	return addresslease.Holder(l), nil
}

func (b *balancer) mustHolder() string {
	b.t.Helper()
	node, err := b.holder(b.t.Context())
	if err != nil || node == "" {
		b.t.Fatalf("nobody announces %s: %v", b.address, err)
	}
	return node
}

// announcedBy makes a node announce the address, by excluding the others for a moment.
func (b *balancer) announcedBy(node string) {
	b.t.Helper()
	for _, n := range []string{plane, worker1, worker2} {
		if n != node {
			b.Podium(b.t, "label", "node", n, corev1.LabelNodeExcludeBalancers+"=true", "--overwrite")
		}
	}
	docked.Eventually(b.t, 30*time.Second, node+" announces "+b.address, func(ctx context.Context) error {
		if got, err := b.holder(ctx); got != node {
			return errors.Join(err, fmt.Errorf("%q does", got))
		}
		return nil
	})
	for _, n := range []string{plane, worker1, worker2} {
		if n != node {
			b.Podium(b.t, "label", "node", n, corev1.LabelNodeExcludeBalancers+"-")
		}
	}
}

// silence sends requests continuously while do runs, and returns the longest time without an
// answer.
func (b *balancer) silence(what string, do func(), after time.Duration) time.Duration {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		var worst time.Duration
		last := time.Now()
		for ctx.Err() == nil {
			if _, err := get(ctx, b.address, "/"); err == nil {
				last = time.Now()
			}
			worst = max(worst, time.Since(last))
			wait, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			<-wait.Done()
			cancel()
		}
		longest <- worst
	}()
	do()
	settled, cancel := context.WithTimeout(b.t.Context(), after)
	defer cancel()
	<-settled.Done()
	stop()
	worst := <-longest
	b.t.Logf("%s: nobody answered for %v", what, worst.Round(10*time.Millisecond))
	return worst
}

// A Service gets an address that answers the host and another container, from all of its pods;
// it follows changes of the Service; when the Service is deleted, the address does not answer
// any more and the next Service gets it.
func TestAServiceGetsAnAddress(t *testing.T) {
	b := the.balancer(t, "front", "Cluster", worker1, worker2)
	b.answers(30 * time.Second)
	seen := map[string]bool{}
	docked.Eventually(t, 20*time.Second, "both pods answer", func(ctx context.Context) error {
		name, err := get(ctx, b.address, "/")
		if err != nil {
			return fmt.Errorf("seen so far: %v; %w", seen, err)
		}
		if seen[name] = true; !seen["front-"+worker1] || !seen["front-"+worker2] {
			return fmt.Errorf("seen so far: %v", seen)
		}
		return nil
	})
	ask := fmt.Sprintf("exec 3<>/dev/tcp/%s/80 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3", b.address)
	out, err := docked.Docker(t.Context(), "run", "--rm", "--network", "podium-"+clusterName, "--entrypoint", "bash", "localhost/podium/node:v1", "-c", ask)
	if err != nil || !strings.Contains(out, "front-") {
		t.Errorf("another container on the network: %v %s", err, out)
	}
	// Other ports of the announcing node, such as the kubelet's, are not reachable.
	if err := refused(t.Context(), b.address, 10250); err != nil {
		t.Error(err)
	}
	the.Podium(t, "delete", "pod", "front-"+worker1)
	docked.Eventually(t, 10*time.Second, "only the pod that is left is asked", func(ctx context.Context) error {
		for range 10 {
			if name, err := get(ctx, b.address, "/"); err != nil || name != "front-"+worker2 {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
		return nil
	})
	the.Podium(t, "delete", "service", "front", "--timeout", "30s")
	// Clients that have learned the address's node continue to ask there: the node must have
	// dropped the Service's rules, too.
	docked.Eventually(t, 3*time.Second, "nobody answers at "+b.address, func(ctx context.Context) error {
		if name, err := get(ctx, b.address, "/"); err == nil {
			return fmt.Errorf("%s does", name)
		}
		return nil
	})
	if _, err := b.holder(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease of %s: %v, want none", b.address, err)
	}
	next := the.balancer(t, "next", "Cluster", worker2)
	if next.address != b.address {
		t.Errorf("the next Service got %s, not %s, which is free", next.address, b.address)
	}
	next.answers(10 * time.Second)
}

// refused returns an error unless a connection is refused at once.
func refused(ctx context.Context, host string, port int) error {
	_, err := docked.Docker(ctx, "run", "--rm", "--network", "podium-"+clusterName, "--entrypoint", "bash", "localhost/podium/node:v1", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", host, port))
	if err == nil || !strings.Contains(err.Error(), "refused") {
		return fmt.Errorf("port %d of %s, which is no Service's: %v, want it refused", port, host, err)
	}
	return nil
}

// The node that announces an address is lost, in four ways. The Service's only pod runs on
// another node, so that only the move of the address is measured.
func TestTheAnnouncingNodeIsLost(t *testing.T) {
	b := the.balancer(t, "lost", "Cluster", worker2)
	b.answers(30 * time.Second)
	for _, way := range []struct {
		name         string
		lose, mend   []string
		within, wait time.Duration
	}{
		{"restarted kube-proxy", nil, nil, 2 * time.Second, 12 * time.Second},
		{"shut down", []string{"stop"}, []string{"start"}, 5 * time.Second, 6 * time.Second},
		{"powered off", []string{"stop", "--now"}, []string{"start"}, 12 * time.Second, 15 * time.Second},
		{"paused", []string{"pause"}, []string{"start"}, 12 * time.Second, 15 * time.Second},
		{"partitioned", []string{"partition"}, []string{"heal"}, 12 * time.Second, 15 * time.Second},
	} {
		t.Run(way.name, func(t *testing.T) {
			b := &balancer{cluster: b.cluster, t: t, name: b.name, address: b.address, api: b.api}
			b.announcedBy(worker1)
			b.answers(5 * time.Second)
			node := func(words []string) {
				the.Podium(t, append(append([]string{"cluster", "node"}, words...), worker1)...)
			}
			took := b.silence(way.name, func() {
				if way.lose != nil {
					node(way.lose)
				} else if _, err := docked.Docker(t.Context(), "exec", worker1, "systemctl", "restart", "kube-proxy"); err != nil {
					t.Error(err)
				}
			}, way.wait)
			if took > way.within {
				t.Errorf("nobody answered for %v, want %v at most", took, way.within)
			}
			if now := b.mustHolder(); (now == worker1) != (way.lose == nil) {
				t.Errorf("announced by %s", now)
			}
			if way.mend != nil {
				back := b.silence("and back", func() { node(way.mend) }, 5*time.Second)
				if back > 3*time.Second {
					t.Errorf("the node came back, and nobody answered for %v", back)
				}
			}
			docked.Eventually(t, time.Minute, worker1+" is ready", func(ctx context.Context) error { return ready(ctx, b.api, worker1) })
		})
	}
}

func ready(ctx context.Context, api *client.Client, node string) error {
	n, err := client.For[*corev1.Node](api).Get(ctx, node)
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("conditions: %+v", n.Status.Conditions)
}

// With policy Local the node with the pod announces, and the pod sees the client's address.
func TestLocalPolicyKeepsTheClientsAddress(t *testing.T) {
	b := the.balancer(t, "local", "Local", worker2)
	b.answers(30 * time.Second)
	if node := b.mustHolder(); node != worker2 {
		t.Errorf("announced by %s, the pod is on %s", node, worker2)
	}
	gateway, err := docked.Docker(t.Context(), "network", "inspect", "podium-"+clusterName, "-f", "{{(index .IPAM.Config 0).Gateway}}")
	if err != nil {
		t.Fatal(err)
	}
	if who, err := get(t.Context(), b.address, "/client"); err != nil || who != gateway {
		t.Errorf("the pod was asked by %q, %v; the host is %s", who, err, gateway)
	}
	the.Feed(t, fmt.Sprintf(pod, b.name, worker1), "apply", "-f", "-")
	the.Podium(t, "wait", "pod/"+b.name+"-"+worker1, "--for=condition=Ready", "--timeout=30s")
	the.Podium(t, "delete", "pod", b.name+"-"+worker2)
	docked.Eventually(t, 10*time.Second, "the pod is elsewhere, and the address too", func(ctx context.Context) error {
		name, err := get(ctx, b.address, "/")
		if node, _ := b.holder(ctx); node != worker1 || name != b.name+"-"+worker1 {
			return fmt.Errorf("%q by %s, %w", name, node, err)
		}
		return nil
	})
}
