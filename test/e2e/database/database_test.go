package database

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

var (
	kills = flag.Int("kills", 5, "how many faults there are")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the order of the faults")
)

const (
	name   = "e2e-database"
	plane  = name + "-control-plane"
	worker = name + "-worker"
	image  = "../../../bin/peers/postgres.tar"
)

// manifest is the database. A server that finds another one at work on the data leaves a
// file, and ends.
const manifest = `
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: clients}
spec: {type: NodePort, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeSelector: {kubernetes.io/hostname: ` + worker + `}
      securityContext: {runAsUser: 999, runAsGroup: 999}
      containers:
      - name: db
        image: localhost/podium/postgres:v1
        imagePullPolicy: Never
        command:
        - sh
        - -c
        - |
          exec 9>/data/lock
          flock -n 9 || { echo twice >>/data/twice; exit 1; }
          if [ ! -e /data/db ]; then
            rm -rf /data/new
            initdb -D /data/new -A trust --no-locale -E UTF8 --data-checksums || exit 1
            echo 'host all all all trust' >>/data/new/pg_hba.conf
            mv /data/new /data/db
          fi
          exec postgres -D /data/db -c listen_addresses='*' -c unix_socket_directories= -c jit=off
        ports: [{containerPort: 5432}]
        readinessProbe: {exec: {command: [pg_isready, -h, 127.0.0.1]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// TestDatabaseKeepsItsData: what the database runs on dies in random order, one thing after
// the other, without a chance to clean up. The next fault does not wait until the cluster
// has recovered from the last one, only until the database acknowledges transactions again.
func TestDatabaseKeepsItsData(t *testing.T) {
	c := newCluster(t)
	first := c.installed()
	writers := c.writers()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, w := range writers {
		running.Go(func() { w.run(ctx) })
	}
	writers.more(t, "at the beginning", 100)

	t.Logf("replay by: -kills %d -seed %d", *kills, *seed)
	figures := map[string][]time.Duration{}
	for i, f := range deal(*kills, rand.New(rand.NewPCG(*seed, 0))) {
		docked.Eventually(t, 3*time.Minute, fmt.Sprintf("%d: %s dies", i+1, f.name), f.strike)
		figures[f.name] = append(figures[f.name], writers.more(t, "after the loss of "+f.name, 100))
	}
	for _, w := range writers {
		group{w}.more(t, fmt.Sprintf("by writer %d", w.id), 10)
	}
	stop()
	running.Wait()
	c.compare(writers)
	c.recovered(first, len(figures["the server"])+len(figures["its node"]))
	t.Log("\n" + table(figures, writers))
}

// cluster is a control plane and a worker with the database.
type cluster struct {
	*testing.T
	*docked.Cluster
	api  *client.Client
	pods client.Resource[*corev1.Pod]
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run node containers")
	}
	c := &cluster{T: t, Cluster: docked.New(name, t.TempDir())}
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() {
			c.KeepLogs(ctx)
		}
		if _, err := c.Try(ctx, "", "cluster", "delete", name); err != nil {
			t.Error(err)
		}
	})
	t.Log(c.Podium(t, "cluster", "create", name, "--workers", "1", "--wait", "3m"))
	c.api = c.Client(t)
	c.pods = client.For[*corev1.Pod](c.api).In("default")
	return c
}

// installed installs the database and returns its pod.
func (c *cluster) installed() *corev1.Pod {
	c.Helper()
	c.Podium(c.T, "cluster", "load", "image", image, "--name", name)
	// The back-off of a container that is killed again and again is five minutes.
	const short = `echo 'crashLoopBackOff: {maxContainerRestartPeriod: 2s}' >>/etc/podium/kubelet.yaml && systemctl restart kubelet`
	if _, err := docked.Docker(c.Context(), "exec", worker, "sh", "-c", short); err != nil {
		c.Fatal(err)
	}
	c.Feed(c.T, manifest, "apply", "-f", "-")
	return c.ready()
}

// ready waits until the database is ready and returns its pod.
func (c *cluster) ready() (pod *corev1.Pod) {
	c.Helper()
	docked.Eventually(c.T, 3*time.Minute, "the database is ready", func(ctx context.Context) (err error) {
		if pod, err = c.pods.Get(ctx, "db-0"); err != nil {
			return err
		}
		for _, cond := range pod.Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
	})
	return pod
}

// group are the clients.
type group []*writer

// writers makes the tables and returns clients that reach the database by the port of each
// node.
func (c *cluster) writers() group {
	c.Helper()
	service, err := client.For[*corev1.Service](c.api).In("default").Get(c.Context(), "clients")
	if err != nil {
		c.Fatal(err)
	}
	var out group
	for i, node := range []string{plane, worker, plane, worker} {
		n, err := client.For[*corev1.Node](c.api).Get(c.Context(), node)
		if err != nil {
			c.Fatal(err)
		}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				out = append(out, &writer{id: i, address: net.JoinHostPort(a.Address, strconv.Itoa(int(service.Spec.Ports[0].NodePort)))})
			}
		}
	}
	c.query(out[0], schema)
	return out
}

// query runs statements by a writer's way to the database.
func (c *cluster) query(w *writer, sql string) (rows []string) {
	c.Helper()
	docked.Eventually(c.T, time.Minute, "the database answers", func(ctx context.Context) error {
		s, err := dial(ctx, w.address)
		if err != nil {
			return err
		}
		defer s.Close()
		rows, err = s.query(ctx, sql)
		return err
	})
	return rows
}

// more waits until the database has acknowledged so many more transactions, and returns how
// long it took until the first of them.
func (g group) more(t *testing.T, when string, transactions int) (first time.Duration) {
	t.Helper()
	count := func() (sum int) {
		for _, w := range g {
			sum += w.acknowledged()
		}
		return sum
	}
	before, begin := count(), time.Now()
	docked.Eventually(t, 3*time.Minute, fmt.Sprintf("%d more transactions %s", transactions, when), func(context.Context) error {
		is := count() - before
		if is > 0 && first == 0 {
			first = time.Since(begin)
		}
		if is < transactions {
			return fmt.Errorf("there are %d", is)
		}
		return nil
	})
	return first
}

// compare checks that every acknowledged transaction is in the database, that none is there
// in part, and that its files are sound.
func (c *cluster) compare(g group) {
	c.Helper()
	for _, w := range g {
		if err := w.check(c.query(w, fmt.Sprintf("SELECT number FROM entries WHERE writer = %d", w.id))); err != nil {
			c.Error(err)
		}
	}
	if sum := c.query(g[0], "SELECT sum(balance) FROM accounts"); len(sum) != 1 || sum[0] != "0" {
		c.Errorf("the balances are %v in sum, want 0", sum)
	}
	c.query(g[0], "SELECT bt_index_check(c.oid, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid IN ('accounts'::regclass, 'entries'::regclass)")
}

// recovered checks that the database is the same pod, that its container was started only
// after its death, and never twice at a time.
func (c *cluster) recovered(first *corev1.Pod, deaths int) {
	c.Helper()
	pod := c.ready()
	if pod.UID != first.UID {
		c.Errorf("the pod is another one: %s, at first %s", pod.UID, first.UID)
	}
	if restarts := pod.Status.ContainerStatuses[0].RestartCount; int(restarts) > deaths {
		c.Errorf("the container was restarted %d times, and died %d times", restarts, deaths)
	}
	var twice string
	docked.Eventually(c.T, time.Minute, "the runtime, which may have died last, runs commands", func(ctx context.Context) (err error) {
		twice, err = c.Try(ctx, "", "exec", "db-0", "--", "sh", "-c", "cat /data/twice 2>/dev/null || true")
		return err
	})
	if twice != "" {
		c.Errorf("two servers were at work on the data: %q", twice)
	}
	docked.Eventually(c.T, 2*time.Minute, "the kubelet measures the claim", func(ctx context.Context) error {
		metrics, err := c.Try(ctx, "", "get", "--raw", "/api/v1/nodes/"+worker+"/proxy/metrics")
		if err == nil && !strings.Contains(metrics, `kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="data-db-0"}`) {
			err = errors.New("the claim has no statistics")
		}
		return err
	})
}
