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

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkPodStart alternately measures what the runtime itself needs for a pod
// (RunPodSandbox, CreateContainer, StartContainer called directly) and the time from POST
// until a watch shows the pod Running; and prints the ratio of the medians.
func BenchmarkPodStart(b *testing.B) {
	runtime := the.runtime(b)
	pods := newBatch(b, the.client(b), "bench")
	var raw, whole []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		sandbox, err := startRaw(b.Context(), runtime, fmt.Sprintf("raw-%d", i), b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		raw = append(raw, time.Since(begin))
		if err := removeRaw(b.Context(), runtime, sandbox); err != nil {
			b.Fatal(err)
		}
		whole = append(whole, pods.start(b, 1)...)
		pods.remove(b, 1)
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

// startRaw starts a pod by the runtime alone, with its log in a directory, and returns its sandbox.
func startRaw(ctx context.Context, runtime cri.RuntimeServiceClient, name, logs string) (sandbox string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "bench", Uid: name},
		Hostname:     name,
		LogDirectory: filepath.Join(logs, name),
		Linux:        &cri.LinuxPodSandboxConfig{},
	}
	pod, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", err
	}
	container, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "web"},
			Image:    &cri.ImageSpec{Image: "localhost/podium/web:v1"},
			LogPath:  "web.log",
			Linux:    &cri.LinuxContainerConfig{},
		},
		SandboxConfig: config,
	})
	if err != nil {
		return "", err
	}
	_, err = runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.ContainerId})
	return pod.PodSandboxId, err
}

func removeRaw(ctx context.Context, runtime cri.RuntimeServiceClient, sandbox string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	_, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return err
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
