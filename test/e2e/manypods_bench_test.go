package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client"
)

// BenchmarkPodsAtOnce alternately starts 50 pods at once by the runtime alone and by the API
// server. Each pod's time is from the common beginning until it runs; and the benchmark
// prints the ratios of the medians and of the slowest.
func BenchmarkPodsAtOnce(b *testing.B) {
	const pods = 50
	runtime := the.runtime(b)
	api := the.client(b)
	var raw, whole [][]time.Duration
	for i := 0; b.Loop(); i++ {
		raw = append(raw, startRawAtOnce(b, runtime, fmt.Sprintf("raw-%d", i), pods))
		batch := newBatch(b, api, fmt.Sprintf("once-%d", i))
		whole = append(whole, batch.start(b, pods))
		batch.remove(b, pods)
	}
	for _, at := range []struct {
		name string
		of   func([]time.Duration) time.Duration
	}{{"median", median}, {"slowest", slices.Max[[]time.Duration]}} {
		r, w := medianOf(raw, at.of), medianOf(whole, at.of)
		b.ReportMetric(float64(r.Milliseconds()), "raw-"+at.name+"-ms")
		b.ReportMetric(float64(w.Milliseconds()), "pod-"+at.name+"-ms")
		b.ReportMetric(float64(w)/float64(r), at.name+"-pod/raw")
	}
}

// startRawAtOnce starts and removes pods by the runtime alone, and returns the time until each ran.
func startRawAtOnce(b *testing.B, runtime cri.RuntimeServiceClient, name string, pods int) []time.Duration {
	b.Helper()
	logs := b.TempDir()
	times := make([]time.Duration, pods)
	sandboxes := make([]string, pods)
	starts, ctx := errgroup.WithContext(b.Context())
	begin := time.Now()
	for p := range pods {
		starts.Go(func() (err error) {
			sandboxes[p], err = startRaw(ctx, runtime, fmt.Sprintf("%s-%d", name, p), logs)
			times[p] = time.Since(begin)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		b.Fatal(err)
	}
	removals, ctx := errgroup.WithContext(b.Context())
	for _, id := range sandboxes {
		removals.Go(func() error { return removeRaw(ctx, runtime, id) })
	}
	if err := removals.Wait(); err != nil {
		b.Fatal(err)
	}
	return times
}

// BenchmarkFullNode prints what the kubelet uses while 30 and 110 pods run undisturbed, and
// how long 110 take to start at once.
func BenchmarkFullNode(b *testing.B) {
	const some, full, idle = 30, 110, time.Minute
	api := the.client(b)
	for i := 0; b.Loop(); i++ {
		pods, err := client.For[*corev1.Pod](api).List(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err != nil {
			b.Fatal(err)
		}
		few := newBatch(b, api, fmt.Sprintf("some-%d", i))
		few.start(b, some-len(pods.Items))
		the.reportKubelet(b, some, idle)
		few.remove(b, some-len(pods.Items))
		all := newBatch(b, api, fmt.Sprintf("full-%d", i))
		times := all.start(b, full-len(pods.Items))
		b.ReportMetric(slices.Max(times).Seconds(), "110-pods-s")
		the.reportKubelet(b, full, idle)
		all.remove(b, full-len(pods.Items))
	}
}

// batch is pods that one watch follows.
type batch struct {
	pods  client.Resource[*corev1.Pod]
	watch *client.Watch[*corev1.Pod]
	name  string
	first int // the number of the oldest pod that exists
	next  int // the number of the next pod
}

func newBatch(b *testing.B, api *client.Client, name string) *batch {
	b.Helper()
	pods := client.For[*corev1.Pod](api).In("default")
	watch, err := pods.Watch(b.Context(), metav1.ListOptions{LabelSelector: "batch=" + name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(watch.Stop)
	return &batch{pods: pods, watch: watch, name: name}
}

// start creates n pods at once and returns the time until each runs, in the order of their start.
func (p *batch) start(b *testing.B, n int) []time.Duration {
	b.Helper()
	begin := time.Now()
	for range n {
		go p.create(b, fmt.Sprintf("%s-%d", p.name, p.next))
		p.next++
	}
	times := map[string]time.Duration{}
	for len(times) < n {
		event, err := p.watch.Next()
		if err != nil {
			b.Fatal(err)
		}
		if _, seen := times[event.Object.Name]; !seen && event.Object.Status.Phase == corev1.PodRunning {
			times[event.Object.Name] = time.Since(begin)
		}
	}
	return slices.Sorted(maps.Values(times))
}

func (p *batch) create(b *testing.B, name string) {
	grace := int64(0)
	_, err := p.pods.Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"batch": p.name}},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "web", Image: "localhost/podium/web:v1"}},
			TerminationGracePeriodSeconds: &grace,
		},
	})
	if err != nil {
		b.Error(err)
		p.watch.Stop()
	}
}

// remove deletes the n oldest pods and waits until they are gone.
func (p *batch) remove(b *testing.B, n int) {
	b.Helper()
	for range n {
		if err := p.pods.Delete(b.Context(), fmt.Sprintf("%s-%d", p.name, p.first), metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		p.first++
	}
	for gone := 0; gone < n; {
		event, err := p.watch.Next()
		if err != nil {
			b.Fatal(err)
		}
		if event.Type == "DELETED" {
			gone++
		}
	}
}

// reportKubelet prints what the kubelet uses of a core and of memory, in a time in which nothing changes.
func (c *cluster) reportKubelet(b *testing.B, pods int, idle time.Duration) {
	b.Helper()
	time.Sleep(10 * time.Second) // what starts or ends pods is still at work
	before := c.cpuSeconds(b, "kubelet")
	time.Sleep(idle)
	used := c.cpuSeconds(b, "kubelet") - before
	b.ReportMetric(100*used/idle.Seconds(), fmt.Sprintf("%d-pods-%%core", pods))
	b.ReportMetric(c.residentMiB(b, "kubelet"), fmt.Sprintf("%d-pods-MiB", pods))
}

// cpuSeconds returns the user and system time that a daemon has used.
func (c *cluster) cpuSeconds(b *testing.B, daemon string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid(b, daemon)))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	ticks := 0
	for _, field := range strings.Fields(rest)[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100 // USER_HZ
}

func medianOf(rounds [][]time.Duration, of func([]time.Duration) time.Duration) time.Duration {
	var all []time.Duration
	for _, times := range rounds {
		all = append(all, of(times))
	}
	return median(all)
}
