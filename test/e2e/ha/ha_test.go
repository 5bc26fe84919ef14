package ha

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/addresslease"
	"podium/test/e2e/traffic"
)

var rounds = flag.Int("rounds", len(faults), "how many losses of a control plane there are")

// Limits of the effects of a lost control plane. mostSilence applies if the node announced the
// load balancer's address; otherwise no request may fail.
const (
	mostOutage  = 5 * time.Second
	mostMove    = 12 * time.Second                      // after the last renewal: the Leases last 10 s
	mostSilence = addresslease.Duration + 6*time.Second // and a request that hangs
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
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
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`

var planes = []string{name + "-control-plane", name + "-control-plane2", name + "-control-plane3"}

// TestTheLossOfAControlPlane: control planes fail in turn (power loss, freeze, network
// partition and so on), each one that leads: the controllers, etcd, or the cloud's
// controllers. No acknowledged write is lost, no request to a Service fails, on a node port
// and at its load balancer's address, and others take over in time.
func TestTheLossOfAControlPlane(t *testing.T) {
	c := newCluster(t)
	url := c.app()
	address := c.balanced("web")
	c.reached(address)
	before := c.pods()
	c.namesApart()
	c.everyServer(before)

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	w, l, front := &traffic.Writer{}, &traffic.Load{}, &balanced{address: netip.MustParseAddr(address)}
	w.Begin(&round{}) // before the first fault
	// A client of its own: the test's requests must not change its current server.
	maps := c.Client(c.T)
	running.Go(func() { w.Run(ctx, client.For[*corev1.ConfigMap](maps).In("default")) })
	running.Go(func() { l.Run(ctx, url) })
	running.Go(func() { front.Run(ctx, "http://"+net.JoinHostPort(address, "80")+"/") })
	registers := c.registers()
	for _, server := range append(c.servers, c.servers...) {
		maps := client.For[*corev1.ConfigMap](c.only(server).Client(c.T)).In("default")
		running.Go(func() { registers.Run(ctx, maps) })
	}

	var all figures
	defer func() { t.Logf("\n%s", all.table()) }()
	for n := range *rounds {
		f := faults[n%len(faults)]
		leader := leaders[(n+n/len(faults))%len(leaders)] // so that each meets each fault
		r := c.survive(f, leader(c), w, l, front)
		t.Logf("round %2d of %d: %s", n+1, *rounds, r)
		all = append(all, r)
	}
	cancel()
	running.Wait()

	c.nothingLost(w)
	ops, unknown, err := registers.Check(2 * time.Minute)
	t.Logf("%d operations on registers, the outcome of %d of them is unknown", ops, unknown)
	if err != nil || ops < 1000 {
		t.Errorf("%d operations on registers: %v", ops, err)
	}
	requests, slowest, err := l.Result()
	if err != nil || requests < 500 {
		t.Errorf("%d requests to the Service; failed:\n%v", requests, err)
	}
	t.Logf("%d writes acknowledged; %d requests to the Service, the slowest took %v", len(w.Acked()), requests, slowest.Round(time.Millisecond))
	if asked, failed := front.Counts(); asked < 500 {
		t.Errorf("only %d requests (%d failed) to the load balancer's address", asked, failed)
	}
	c.everyServer(before)
	if now := c.balanced("web"); now != address {
		t.Errorf("the Service's address was %s, and is %s", address, now)
	}
	c.reached(address)
	c.podium("create", "service", "loadbalancer", "later", "-n", "default", "--tcp=80:8080")
	c.balanced("later")
	if after := c.pods(); !slices.EqualFunc(before, after, samePod) {
		t.Error("the pods are not those from before, or were restarted")
	}
}

// registers creates the ConfigMaps whose history the test checks.
func (c *cluster) registers() *traffic.Registers {
	c.Helper()
	r := &traffic.Registers{Names: []string{"register-a", "register-b", "register-c"}}
	if err := r.Create(c.Context(), client.For[*corev1.ConfigMap](c.api).In("default")); err != nil {
		c.Fatal(err)
	}
	return r
}

// fault is a way to lose a control plane, and the command that brings it back.
type fault struct {
	name    string
	command []string
	cure    string
}

var faults = []fault{
	{name: "stopped", command: []string{"stop", "--now"}, cure: "start"},
	{name: "paused", command: []string{"pause"}, cure: "start"},
	{name: "partitioned", command: []string{"partition"}, cure: "heal"},
}

var leaders = []func(*cluster) string{
	func(c *cluster) string { return c.leader("kube-controller-manager") },
	(*cluster).etcdLeader,
	func(c *cluster) string { return c.leader("cloud-controller-manager") },
}

// atLeast is how long a control plane is down.
const atLeast = 8 * time.Second

// survive causes the fault, measures its effects, and undoes it. It returns when etcd's
// members are all healthy again.
func (c *cluster) survive(f fault, victim string, w *traffic.Writer, l *traffic.Load, front *balanced) *round {
	c.Helper()
	c.begin(front, victim)
	r := &round{fault: f.name, victim: victim, etcd: c.etcdLeader() == victim}
	other := planes[(slices.Index(planes, victim)+1)%len(planes)]
	led := c.led(victim)
	w.Begin(r)
	asked, failed := l.Counts()
	begin := time.Now()
	c.podium(append(append([]string{"cluster", "node"}, f.command...), victim)...)
	mayRenew := time.Since(begin)
	for _, lease := range led {
		c.eventually(mostMove+15*time.Second, lease+" runs elsewhere", func(ctx context.Context) error {
			if holder, err := c.holder(ctx, lease); err != nil || holder == victim {
				return fmt.Errorf("%s leads (%w)", holder, err)
			}
			return nil
		})
		r.moved = time.Since(begin)
	}
	if r.moved > mayRenew+mostMove {
		c.Errorf("%s %s: leadership of %v moved after %v: want less than %v after the last renewal, which was in the first %v", victim, f.name, led, r.moved, mostMove, mayRenew)
	}
	traffic.Pause(c.Context(), time.Until(begin.Add(atLeast)))
	if r.outage = w.Outage(); r.outage > mostOutage {
		c.Errorf("%s %s: nothing could be written for %v: want less than %v", victim, f.name, r.outage, mostOutage)
	}
	w.Reset()
	c.podium("cluster", "node", f.cure, victim)
	r.back = c.eventually(time.Minute, victim+" is back", func(ctx context.Context) error {
		_, err := c.members(ctx, other)
		return errors.Join(err, c.nodeReady(ctx, victim))
	})
	if r.returning = w.Outage(); r.returning > mostOutage {
		c.Errorf("%s came back from being %s, and nothing could be written for %v", victim, f.name, r.returning)
	}
	r.requests, r.failed = l.Counts()
	r.requests, r.failed = r.requests-asked, r.failed-failed
	c.end(front, r)
	return r
}

// balanced is the load on the Service's load balancer address.
type balanced struct {
	traffic.Load
	address netip.Addr

	asked, failed int  // when the fault began
	announced     bool // by the victim
}

// begin records the counts before a fault, and whether the victim announces the address.
func (c *cluster) begin(front *balanced, victim string) {
	c.Helper()
	l, err := client.For[*coordinationv1.Lease](c.api).In(addresslease.Namespace).Get(c.Context(), addresslease.Name(front.address))
	if err != nil {
		c.Fatal(err)
	}
	front.announced = addresslease.Holder(l) == victim
	front.asked, front.failed = front.Counts()
	front.Reset()
}

// end records the effect of the fault on the address.
func (c *cluster) end(front *balanced, r *round) {
	c.Helper()
	asked, failed := front.Counts()
	silence := front.Silence()
	c.Logf("at %s, announced by the victim: %t, %d of %d requests failed, and nobody answered for %v",
		front.address, front.announced, failed-front.failed, asked-front.asked, silence.Round(time.Millisecond))
	switch {
	case asked == front.asked:
		c.Errorf("%s %s: no request was made at %s", r.victim, r.fault, front.address)
	case front.announced && silence > mostSilence:
		c.Errorf("%s %s: nobody answered at %s for %v: want less than %v", r.victim, r.fault, front.address, silence, mostSilence)
	case !front.announced && failed > front.failed:
		c.Errorf("%s %s: %d requests to %s failed, which another node announces", r.victim, r.fault, failed-front.failed, front.address)
	}
}

// led returns the daemons whose leader is on a control plane.
func (c *cluster) led(victim string) (leases []string) {
	c.Helper()
	for _, lease := range []string{"kube-controller-manager", "kube-scheduler", "cloud-controller-manager"} {
		if c.leader(lease) == victim {
			leases = append(leases, lease)
		}
	}
	return leases
}

// holder returns the control plane with the leader of a daemon's replicas.
func (c *cluster) holder(ctx context.Context, lease string) (string, error) {
	l, err := client.For[*coordinationv1.Lease](c.api).In("kube-system").Get(ctx, lease)
	if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("nobody holds %s (%w)", lease, err)
	}
	node, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	return node, nil
}

func (c *cluster) leader(lease string) (node string) {
	c.Helper()
	c.eventually(20*time.Second, "one leads: "+lease, func(ctx context.Context) (err error) {
		node, err = c.holder(ctx, lease)
		return err
	})
	return node
}

func (c *cluster) etcdLeader() (node string) {
	c.Helper()
	c.eventually(20*time.Second, "a member of etcd leads", func(ctx context.Context) (err error) {
		node, err = c.members(ctx, planes[0])
		return err
	})
	return node
}

// app starts the Service and returns its URL on the worker.
func (c *cluster) app() string {
	c.Helper()
	c.Feed(c.T, web, "apply", "-n", "default", "-f", "-")
	c.podium("rollout", "status", "-n", "default", "deployment/web", "--timeout", "1m")
	svc, err := client.For[*corev1.Service](c.api).In("default").Get(c.Context(), "web")
	if err != nil {
		c.Fatal(err)
	}
	node, err := client.For[*corev1.Node](c.api).Get(c.Context(), worker)
	if err != nil {
		c.Fatal(err)
	}
	i := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	url := "http://" + net.JoinHostPort(node.Status.Addresses[i].Address, strconv.Itoa(int(svc.Spec.Ports[0].NodePort))) + "/"
	c.eventually(20*time.Second, "the Service answers", func(ctx context.Context) error { return traffic.Ask(ctx, url) })
	return url
}

// balanced returns the address that the cloud's load balancer has for a Service.
func (c *cluster) balanced(service string) (address string) {
	c.Helper()
	c.eventually(20*time.Second, service+" has an address of the cloud's", func(ctx context.Context) error {
		svc, err := client.For[*corev1.Service](c.api).In("default").Get(ctx, service)
		if err != nil || len(svc.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("not one address (%v)", err)
		}
		address = svc.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	return address
}

// reached waits until the app answers at the address.
func (c *cluster) reached(address string) {
	c.Helper()
	c.eventually(20*time.Second, "the app answers at "+address, func(ctx context.Context) error {
		return traffic.Ask(ctx, "http://"+net.JoinHostPort(address, "80")+"/")
	})
}

// pods returns the app's pods, ordered by name.
func (c *cluster) pods() []*corev1.Pod {
	c.Helper()
	list, err := client.For[*corev1.Pod](c.api).In("default").List(c.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(list.Items) != 2 {
		c.Fatalf("pods: %v, %v", list, err)
	}
	slices.SortFunc(list.Items, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// namesApart waits until the DNS servers do not all run on one machine.
func (c *cluster) namesApart() {
	c.Helper()
	c.eventually(20*time.Second, "name servers are on several nodes", func(ctx context.Context) error {
		list, err := client.For[*corev1.Pod](c.api).In("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		if err != nil {
			return err
		}
		on := map[string]bool{}
		for _, p := range list.Items {
			on[p.Spec.NodeName] = p.DeletionTimestamp == nil
		}
		if len(list.Items) != 2 || len(on) != 2 {
			return fmt.Errorf("%d name servers are on %v", len(list.Items), on)
		}
		return nil
	})
}

func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Status.ContainerStatuses[0].RestartCount == b.Status.ContainerStatuses[0].RestartCount
}

// everyServer reads a pod's log and runs a command in it through each API server.
func (c *cluster) everyServer(pods []*corev1.Pod) {
	c.Helper()
	for _, server := range c.servers {
		narrow := c.only(server)
		c.eventually(20*time.Second, "logs and exec by "+server, func(context.Context) error {
			_, err := narrow.Try(c.Context(), "", "logs", "-n", "default", pods[0].Name)
			out, err2 := narrow.Try(c.Context(), "", "exec", "-n", "default", pods[1].Name, "--", "/web", "get", "http://"+pods[0].Status.PodIP+":8080/")
			if err2 == nil && strings.TrimSpace(out) != pods[0].Name {
				err2 = fmt.Errorf("%q answered", out)
			}
			return errors.Join(err, err2)
		})
	}
}

// nothingLost checks all acknowledged writes on all servers, and counts missing ones for the
// round in which they were written.
func (c *cluster) nothingLost(w *traffic.Writer) {
	c.Helper()
	if n := len(w.Acked()); n < 500 {
		c.Errorf("only %d writes were acknowledged", n)
	}
	lost := map[traffic.Written]bool{}
	for _, server := range c.servers {
		api := c.only(server).Client(c.T)
		missing, err := w.Missing(c.Context(), client.For[*corev1.ConfigMap](api).In("default"))
		if err != nil {
			c.Fatal(err)
		}
		for _, write := range missing {
			c.Errorf("%s was acknowledged, and %s does not know it", write.Name, server)
			lost[write] = true
		}
		api.CloseIdle()
	}
	for write := range lost {
		write.During.(*round).lost++
	}
}
