// Command hollow measures a control plane end to end. It registers nodes, which send
// heartbeats, watch their pods and the ConfigMaps in the pods' volumes, and report pods as
// running. It creates a Deployment, and prints how fast its pods are created, bound and
// running, and what each daemon of the cluster used meanwhile. If asked to, it also prints
// how fast the garbage collector deletes the dependents of one owner.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

type bench struct {
	client kubernetes.Interface
	nodes  int
	pods   int
	dir    string
	// dependents is the number of objects with one owner that the garbage collector shall delete.
	dependents int
}

func main() {
	log.SetFlags(log.Ltime)
	b := &bench{}
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of an administrator")
	flag.IntVar(&b.nodes, "nodes", 1000, "hollow nodes")
	flag.IntVar(&b.pods, "pods", 10000, "replicas of the Deployment")
	flag.IntVar(&b.dependents, "dependents", 0, "objects with one owner, which is deleted last")
	flag.StringVar(&b.dir, "dir", "", "directory of the cluster, which is among the arguments of its daemons")
	idle := flag.Duration("idle", 30*time.Second, "how long the idle cluster is measured")
	limit := flag.Duration("limit", 15*time.Minute, "hard stop")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.ContentType, config.UserAgent = -1, runtime.ContentTypeProtobuf, "bench-hollow"
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := b.run(ctx, *idle); err != nil {
		log.Fatal(err)
	}
}

func (b *bench) run(ctx context.Context, idle time.Duration) error {
	nodes, err := b.register(ctx)
	if err != nil {
		return err
	}
	defer nodes.stop()
	if err := b.phase(ctx, "heartbeats", func() (map[string]any, error) {
		return map[string]any{"nodes": b.nodes}, pause(ctx, idle)
	}); err != nil {
		return err
	}
	if err := b.phase(ctx, "deployment", func() (map[string]any, error) { return b.deploy(ctx) }); err != nil {
		return err
	}
	if err := b.phase(ctx, "idle", func() (map[string]any, error) {
		return map[string]any{"nodes": b.nodes, "pods": b.pods}, pause(ctx, idle)
	}); err != nil {
		return err
	}
	if b.dependents > 0 {
		if err := b.phase(ctx, "dependents", func() (map[string]any, error) { return b.ownedObjects(ctx) }); err != nil {
			return err
		}
		if err := b.phase(ctx, "garbage", func() (map[string]any, error) { return b.collect(ctx) }); err != nil {
			return err
		}
	}
	if n := nodes.failed.Load(); n > 0 {
		return fmt.Errorf("%d requests of nodes failed; the last one: %v", n, nodes.last.Load())
	}
	return nil
}

// phase runs one phase and prints a line of JSON: what the phase returns, its duration,
// the requests that the API server has served (those of at least 1 % of all), and the CPU
// time and memory of each daemon, with the most memory since its start.
func (b *bench) phase(ctx context.Context, name string, run func() (map[string]any, error)) error {
	served, err := b.requests(ctx)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	before, began := b.daemons(), time.Now()
	line, err := run()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(began).Seconds()
	line["phase"], line["seconds"] = name, round(took)
	daemons := map[string]any{}
	for daemon, now := range b.daemons() {
		cpu := now.cpu - before[daemon].cpu
		daemons[daemon] = map[string]float64{"cpu_s": round(cpu), "cpu_percent": round(100 * cpu / took), "rss_mib": round(now.rss), "peak_mib": round(now.peak)}
	}
	line["daemons"] = daemons
	now, err := b.requests(ctx)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	all := 0.0
	for request, n := range now {
		now[request] -= served[request]
		all += n - served[request]
	}
	maps.DeleteFunc(now, func(_ string, n float64) bool { return n < all/100 })
	line["requests"] = now
	return json.NewEncoder(os.Stdout).Encode(line)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func round(x float64) float64 { return float64(int64(x*100+0.5)) / 100 }
