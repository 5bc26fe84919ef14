package security

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// abuseTime is short for `make test`; `make soak` gives it minutes.
var abuseTime = flag.Duration("abuse", 40*time.Second, "how long TestResourceAbuse lasts")

// leaseDuration is the duration of a kubelet's Lease.
const leaseDuration = 40 * time.Second

// One tenant attacks in all ways at once; another one works. The assertions hold on a loaded
// machine, too; the latencies are only logged.
func TestResourceAbuse(t *testing.T) {
	prefer(preferred) // the tenant's requests, too, stand for other machines
	defer prefer(0)
	a, b := newTenant(t), newTenant(t)
	b.wants(http.StatusCreated, "POST", b.path("configmaps"), jsonType, `{"metadata":{"name":"x"}}`)
	// Before the attacks begin: the API server refuses requests of a tenant with too many others under way.
	a.wants(http.StatusCreated, "POST", a.path("configmaps"), jsonType, `{"metadata":{"name":"patched","annotations":{"a":"b"}}}`)
	calm := observe(t, b, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), *abuseTime)
	defer cancel()
	m := &mischief{tenant: a, ctx: ctx, done: map[string]*atomic.Int64{}}
	defer m.end()
	m.pods()
	m.stalls()
	m.bombs()
	m.floods()
	m.watches()
	var all sync.WaitGroup
	all.Go(func() { heartbeats(ctx, t) })
	abused := observe(t, b, *abuseTime)
	all.Wait()
	cancel()
	m.end()
	t.Logf("GETs of another tenant: calm %v, under abuse %v", calm, abused)
	t.Logf("the API server's peak of memory: %d MB; the tenant has stored %d MB", memoryPeak(t)>>20, m.stored.Load()>>20)
	for what, n := range m.done {
		t.Logf("%s: %d", what, n.Load())
		if n.Load() == 0 {
			t.Errorf("the tenant has done nothing of: %s", what)
		}
	}
	unharmed(t, b)
}

// latencies are those of requests that were answered with 200.
type latencies []time.Duration

func (l latencies) String() string {
	if len(l) == 0 {
		return "none"
	}
	slices.Sort(l)
	at := func(percent int) time.Duration { return l[len(l)*percent/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("n=%d p50=%v p99=%v max=%v", len(l), at(50), at(99), l[len(l)-1].Round(100*time.Microsecond))
}

// heartbeats checks that the node's Lease is renewed in time and the node stays Ready.
func heartbeats(ctx context.Context, t *testing.T) {
	leases, nodes := client.For[*coordinationv1.Lease](admin).In("kube-node-lease"), client.For[*corev1.Node](admin)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if lease, err := leases.Get(t.Context(), "node-a"); err != nil {
			t.Errorf("read the node's Lease: %v", err)
		} else if late := time.Since(lease.Spec.RenewTime.Time); late > leaseDuration {
			t.Errorf("the node's Lease was renewed %v ago", late)
		}
		node, err := nodes.Get(t.Context(), "node-a")
		if err != nil {
			t.Errorf("read the node: %v", err)
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				t.Errorf("the node is not ready: %s %s", c.Reason, c.Message)
			}
		}
	}
}

// mischief is the attacks of a malicious tenant, with counts.
type mischief struct {
	*tenant
	ctx  context.Context
	all  sync.WaitGroup
	done map[string]*atomic.Int64 // written before the workers start

	stored atomic.Int64 // bytes of the objects that the flood has created
}

func (m *mischief) end() { m.all.Wait() }

// keep runs workers that repeat do until the time is over.
func (m *mischief) keep(what string, workers int, do func(i int)) {
	n := &atomic.Int64{}
	m.done[what] = n
	for range workers {
		m.all.Go(func() {
			for i := 0; m.ctx.Err() == nil; i++ {
				do(i)
				n.Add(1)
			}
		})
	}
}

// send sends a request and returns the status, 0 if there was no response; refusals are expected.
func (m *mischief) send(method, path, contentType, body string) int {
	resp, err := m.http.Do(m.request(method, path, contentType, body).WithContext(m.ctx))
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		m.pause(100 * time.Millisecond) // a tenth of the requested delay
	}
	return resp.StatusCode
}

func (m *mischief) pause(d time.Duration) {
	select {
	case <-m.ctx.Done():
	case <-time.After(d):
	}
}

// stalls are requests that never complete, and slow ones.
func (m *mischief) stalls() {
	m.keep("connections with stalled bodies", 2, func(int) { m.stall(65535, "POST", m.path("configmaps")) })
	m.keep("connections with unread answers", 2, func(int) { m.stall(0, "GET", "/openapi/v2") })
	m.keep("slow connections", 50, func(int) { m.slow() })
}

func (m *mischief) stall(window uint32, method, path string) {
	c, err := m.dial(window)
	if err != nil {
		m.pause(time.Second)
		return
	}
	defer c.conn.Close()
	if c.open(240, method, path) == nil {
		m.pause(10 * time.Second)
	}
}

// slow sends a request at one byte per second.
func (m *mischief) slow() {
	to, err := url.Parse(server)
	if err != nil {
		return
	}
	conn, err := tls.Dial("tcp", to.Host, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	if err != nil {
		m.pause(time.Second)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n", m.path("configmaps"), m.token)
	for range 20 {
		if _, err := io.WriteString(conn, " "); err != nil || m.ctx.Err() != nil {
			return
		}
		m.pause(time.Second)
	}
}

// bombs are bodies that expand to much more than their size, and patches whose work is just below the bound.
func (m *mischief) bombs() {
	scalar, pod := longScalar(), manyContainers()
	proto := "k8s\x00\x12\xd0\x0f\x12\xcd\x0f" + strings.Repeat("\x12\x00", 1000)
	patch := `{"metadata":{"finalizers":` + finalizers(3100, "b") + `}}`
	m.keep("bombs of YAML", 2, func(int) { m.send("POST", m.path("configmaps"), yamlType, scalar) })
	m.keep("bombs of YAML, applied", 2, func(int) { m.send("PATCH", m.path("configmaps")+"/x?fieldManager=m", applyType, scalar) })
	m.keep("bombs of JSON", 4, func(int) { m.send("POST", m.path("pods"), jsonType, pod) })
	m.keep("bombs of protobuf", 2, func(int) { m.send("POST", m.path("pods"), protoType, proto) })
	m.keep("quadratic patches", 2, func(int) { m.send("PATCH", m.path("configmaps")+"/patched?dryRun=All", smpType, patch) })
}

// floods are many writes.
func (m *mischief) floods() {
	text := strings.Repeat("x", 100<<10)
	one := event(m.namespace)
	m.keep("events", 4, func(int) { m.send("POST", m.path("events"), jsonType, one) })
	m.keep("objects", 4, func(i int) {
		body := fmt.Sprintf(`{"metadata":{"generateName":"flood-"},"data":{"a":"%d%s"}}`, i, text)
		if m.send("POST", m.path("configmaps"), jsonType, body) == http.StatusCreated {
			m.stored.Add(int64(len(body)))
		}
	})
	m.keep("lists", 4, func(int) { m.send("GET", m.path("configmaps"), "", "") })
}

// watches opens two thousand watches, and keeps those that are accepted.
func (m *mischief) watches() {
	const each = 100
	m.keep("watches", 2000/each, func(int) {
		var open []*http.Response
		for range each {
			resp, err := m.http.Do(m.request("GET", m.path("configmaps")+"?watch=true", "", "").WithContext(m.ctx))
			if err == nil {
				open = append(open, resp)
			}
		}
		m.pause(10 * time.Second)
		for _, resp := range open {
			resp.Body.Close()
		}
	})
}

// pods write logs as fast as they can, and fork without end.
func (m *mischief) pods() {
	run := func(name, script string) {
		p := pod("", name, "none")
		p.Spec.Volumes = nil
		p.Spec.Containers[0].Command = []string{"sh", "-c", script}
		body, err := json.Marshal(p)
		check(m.T, err)
		m.wants(http.StatusCreated, "POST", m.path("pods"), jsonType, string(body))
	}
	run("logs", `line=$(head -c 8000 /dev/zero | tr '\0' x); while true; do i=0; while [ $i -lt 64 ]; do echo "$line"; i=$((i+1)); done; sleep 0.1; done`)
	logs := podReaches(m.T, m.namespace, "logs", "runs", func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodRunning })
	pidsMax(m.T, podPIDs(m.T, logs.UID)) // without a limit the test would exhaust the machine
	run("forks", `bomb() { bomb | bomb & }; while true; do bomb; sleep 1; done`)
}
