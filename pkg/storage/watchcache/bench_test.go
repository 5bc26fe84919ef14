package watchcache_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/storage/memory"
	"podium/pkg/storage/watchcache"
)

// ordinary makes a pod as large as those a Deployment makes.
func ordinary(i int) change {
	return func(p *corev1.Pod) {
		now := metav1.Now()
		yes := true
		p.UID = types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i))
		p.CreationTimestamp = now
		p.GenerateName = "web-5d4f8c7b9-"
		p.Labels = map[string]string{"app": "web", "pod-template-hash": "5d4f8c7b9"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c7b9",
			UID: "11111111-0000-4000-8000-000000000000", Controller: &yes, BlockOwnerDeletion: &yes}}
		p.Spec = corev1.PodSpec{
			NodeName: "node-" + strconv.Itoa(i%1000), RestartPolicy: "Always", DNSPolicy: "ClusterFirst",
			SchedulerName: "default-scheduler", ServiceAccountName: "default",
			Volumes: []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}},
			Containers: []corev1.Container{{
				Name: "web", Image: "registry.example/web:1.2.3", ImagePullPolicy: "IfNotPresent",
				Ports:        []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}},
				Env:          []corev1.EnvVar{{Name: "MODE", Value: "production"}},
				Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}},
		}
		p.Status = corev1.PodStatus{Phase: "Running", PodIP: "10.244.1.7", HostIP: "192.168.0.10", StartTime: &now,
			Conditions:        []corev1.PodCondition{{Type: "Ready", Status: "True", LastTransitionTime: now}, {Type: "PodScheduled", Status: "True", LastTransitionTime: now}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Ready: true, Image: "registry.example/web:1.2.3", ContainerID: "containerd://0123456789abcdef"}}}
	}
}

func filled(b *testing.B, n int) *fixture {
	b.Helper()
	f := newFixture(b, memory.New(), 0)
	for i := range n {
		f.create(podName(i), ordinary(i))
	}
	f.run()
	f.latest()
	return f
}

func podName(i int) string { return fmt.Sprintf("ns-%d/web-5d4f8c7b9-%05d", i%10, i) }

func list(b *testing.B, s *watchcache.Snapshot, w io.Writer) (n int) {
	s.Ascend(podRoot, "", func(e *watchcache.Entry) bool {
		data, err := e.JSON()
		if err != nil {
			b.Fatal(err)
		}
		n++
		return data.Write(w, 0) == nil
	})
	return n
}

// A consistent LIST of 10,000 pods: what the cache contributes to it.
func BenchmarkList10k(b *testing.B) {
	f := filled(b, 10_000)
	for name, between := range map[string]func(){
		"Quiet":     func() {},
		"OneUpdate": func() { f.update(podName(0), ordinary(0)) },
	} {
		b.Run(name, func(b *testing.B) {
			list(b, f.latest(), io.Discard)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				between()
				b.StartTimer()
				if n := list(b, f.latest(), io.Discard); n != 10_000 {
					b.Fatalf("%d pods", n)
				}
			}
		})
	}
}

// One update of a pod, until every interested watcher of 1,000 has its frame.
func BenchmarkFanOut1000(b *testing.B) {
	for name, selector := range map[string]func(i int) watchcache.WatchOptions{
		"OneInterested": func(i int) watchcache.WatchOptions {
			return watchcache.WatchOptions{After: -1, Fields: selectFields("spec.nodeName=node-" + strconv.Itoa(i))}
		},
		"AllInterested": func(int) watchcache.WatchOptions { return watchcache.WatchOptions{After: -1} },
	} {
		b.Run(name, func(b *testing.B) {
			f := filled(b, 1000)
			var delivered atomic.Int64
			var group sync.WaitGroup
			var all []*watchcache.Watcher
			for i := range 1000 {
				w := f.watch(selector(i))
				all = append(all, w)
				group.Go(func() { drain(w, &delivered) })
			}
			want, each := int64(0), int64(1)
			if name == "AllInterested" {
				each = 1000
			}
			b.ReportAllocs()
			for b.Loop() {
				f.update(podName(0), ordinary(0))
				for want += each; delivered.Load() < want; {
					runtime.Gosched()
				}
			}
			b.StopTimer()
			for _, w := range all {
				w.Stop()
			}
			group.Wait()
		})
	}
}

func drain(w *watchcache.Watcher, delivered *atomic.Int64) {
	for {
		events, err := w.Next(context.Background())
		if err != nil {
			return
		}
		for i := range events {
			ev := &events[i]
			ev.Frame("json", func() []byte {
				data, err := ev.Entry.JSON()
				if err != nil {
					panic(err)
				}
				return data.Bytes()
			})
			delivered.Add(1)
		}
	}
}

// Consistent GETs from many goroutines while pods are written.
func BenchmarkConsistentGet(b *testing.B) {
	f := filled(b, 10_000)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				f.update(podName(i%10_000), ordinary(i))
			}
		}
	})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			s, err := f.pods.Latest(context.Background())
			if err != nil {
				b.Error(err)
				return
			}
			if s.Get(podRoot+podName(i%10_000)) == nil {
				b.Error("missing")
				return
			}
		}
	})
	b.StopTimer()
	close(stop)
	writer.Wait()
}

// What one cached pod costs: the object, then with its encodings.
func BenchmarkMemoryPerPod(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		store := memory.New()
		f := newFixture(b, store, 0)
		stored := 0
		for i := range n {
			f.create(podName(i), ordinary(i))
		}
		stored = len(f.pod(podName(0), ordinary(0)))
		before := heap()
		f.run()
		s := f.latest()
		b.ReportMetric(float64(stored), "stored-B/pod")
		b.ReportMetric(float64(heap()-before)/n, "cached-B/pod")
		list(b, s, io.Discard)
		b.ReportMetric(float64(heap()-before)/n, "with-JSON-B/pod")
		f.stop()
		runtime.KeepAlive(f)
		runtime.KeepAlive(s)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
