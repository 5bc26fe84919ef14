package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
)

// checkpointed is a running pod over a fake runtime, and a server for it.
func checkpointed(t *testing.T, cfg crifake.Config) (h http.Handler, root string) {
	t.Helper()
	cfg.Images = []string{"app:1"}
	runtime, root := crifake.New(cfg), t.TempDir()
	box := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}}
	made, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
	if err != nil {
		t.Fatal(err)
	}
	c, err := runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: made.PodSandboxId, SandboxConfig: box, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "app:1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}, {Name: "waits"}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + c.ContainerId}, {Name: "waits"}}
	return New(Config{Access: anyone{}, Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} }, Runtime: runtime, RootDir: root}), root
}

func TestCheckpoint(t *testing.T) {
	works := func(context.Context, crifake.Container) ([]byte, error) { return []byte("memory"), nil }
	hangs := func(ctx context.Context, _ crifake.Container) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
	fails := func(context.Context, crifake.Container) ([]byte, error) { return nil, errors.New("no CRIU") }
	for name, row := range map[string]struct {
		checkpoint func(context.Context, crifake.Container) ([]byte, error)
		path       string
		code       int
		want       string
	}{
		"Works":         {works, "ns/p/c", 200, `{"items":["ROOT/checkpoints/checkpoint-p_ns-c-2000-01-01T00:00:00Z.tar"]}`},
		"LastTimeout":   {works, "ns/p/c?timeout=x&timeout=5", 200, `{"items":["ROOT/checkpoints/checkpoint-p_ns-c-2000-01-01T00:00:00Z.tar"]}`},
		"Unimplemented": {nil, "ns/p/c", 500, "checkpointing of ns/p/c failed (rpc error: code = Unimplemented desc = unknown method CheckpointContainer for service runtime.v1.RuntimeService)"},
		"Fails":         {fails, "ns/p/c", 500, "checkpointing of ns/p/c failed (rpc error: code = Unknown desc = no CRIU)"},
		"TakesTooLong":  {hangs, "ns/p/c?timeout=5", 500, "checkpointing of ns/p/c failed (rpc error: code = DeadlineExceeded desc = context deadline exceeded)"},
		"NotStarted":    {works, "ns/p/waits", 500, "checkpointing of ns/p/waits failed (container waits not found)"},
		"NoPod":         {works, "ns/other/c", 404, "pod does not exist"},
		"OtherSpace":    {works, "default/p/c", 404, "pod does not exist"},
		"NoContainer":   {works, "ns/p/other", 404, "container other does not exist"},
		"NoTimeout":     {works, "ns/p/c?timeout=soon", 400, "cannot parse value of timeout parameter"},
		"Negative":      {works, "ns/p/c?timeout=-1", 400, "cannot parse value of timeout parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, root := checkpointed(t, crifake.Config{Checkpoint: row.checkpoint})
				began, w := time.Now(), httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/checkpoint/"+row.path, nil)
				h.ServeHTTP(w, r)
				if got := strings.ReplaceAll(w.Body.String(), root, "ROOT"); w.Code != row.code || got != strings.ReplaceAll(row.want, "2000-01-01T00:00:00Z", began.Format(time.RFC3339)) {
					t.Errorf("%d %s, want %d %s", w.Code, got, row.code, row.want)
				}
				if d := time.Since(began); strings.Contains(row.want, "deadline") && d != 5*time.Second {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

// Only root may read checkpoints.
func TestCheckpointsAreSecret(t *testing.T) {
	h, root := checkpointed(t, crifake.Config{Checkpoint: func(context.Context, crifake.Container) ([]byte, error) { return []byte("memory"), nil }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/checkpoint/ns/p/c", nil))
	files, err := filepath.Glob(filepath.Join(root, "checkpoints", "checkpoint-p_ns-c-*.tar"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d %s: files %v, %v", w.Code, w.Body, files, err)
	}
	for path, want := range map[string]os.FileMode{filepath.Dir(files[0]): 0o700, files[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %v", path, info.Mode(), err, want)
		}
	}
}
