package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/client"
)

// BenchmarkPodStart alternately measures what the runtime itself needs for a pod
// (RunPodSandbox, CreateContainer, StartContainer called directly) and the time from POST
// until a watch shows the pod Running; and prints the ratio of the medians.
func BenchmarkPodStart(b *testing.B) {
	runtime := the.runtime(b)
	api := the.client(b)
	var raw, whole []time.Duration
	for i := 0; b.Loop(); i++ {
		raw = append(raw, startRaw(b, runtime, i))
		whole = append(whole, startPod(b, api, i))
	}
	r, w := median(raw), median(whole)
	b.ReportMetric(float64(r.Milliseconds()), "raw-ms")
	b.ReportMetric(float64(w.Milliseconds()), "pod-ms")
	b.ReportMetric(float64(w)/float64(r), "pod/raw")
}

// BenchmarkIdleMemory prints the resident memory of each daemon of an idle cluster.
func BenchmarkIdleMemory(b *testing.B) {
	for b.Loop() {
	}
	total := 0.0
	for _, name := range daemons {
		mib := the.residentMiB(b, name)
		total += mib
		b.ReportMetric(mib, name+"-MiB")
	}
	b.ReportMetric(total, "all-MiB")
}

// daemons are Podium's; the embedded etcd is in kube-apiserver.
var daemons = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func startRaw(b *testing.B, runtime cri.RuntimeServiceClient, i int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("raw-%d", i)
	logs := filepath.Join(b.TempDir(), name)
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "bench", Uid: name},
		Hostname:     name,
		LogDirectory: logs,
		Linux:        &cri.LinuxPodSandboxConfig{},
	}
	begin := time.Now()
	sandbox, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		b.Fatal(err)
	}
	container, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "web"},
			Image:    &cri.ImageSpec{Image: "localhost/podium/web:v1"},
			LogPath:  "web.log",
			Linux:    &cri.LinuxContainerConfig{},
		},
		SandboxConfig: config,
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		b.Fatal(err)
	}
	took := time.Since(begin)
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox.PodSandboxId}); err != nil {
		b.Fatal(err)
	}
	if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox.PodSandboxId}); err != nil {
		b.Fatal(err)
	}
	return took
}

func startPod(b *testing.B, api *client.Client, i int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	pods := client.For[*corev1.Pod](api).In("default")
	name := fmt.Sprintf("bench-%d", i)
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	begin := time.Now()
	grace := int64(0)
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "web", Image: "localhost/podium/web:v1"}},
			TerminationGracePeriodSeconds: &grace,
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	took := time.Duration(0)
	for {
		event, err := w.Next()
		if err != nil {
			b.Fatal(err)
		}
		if took == 0 && event.Object.Status.Phase == corev1.PodRunning {
			took = time.Since(begin)
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		if event.Type == "DELETED" {
			return took
		}
	}
}

var residentLine = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

func (c *cluster) residentMiB(t testing.TB, daemon string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid(t, daemon)))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.ParseFloat(residentLine.FindStringSubmatch(strings.TrimSpace(string(text)))[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}
