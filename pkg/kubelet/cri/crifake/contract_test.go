package crifake_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/cri/crifake"
)

// TestContract checks what the kubelet relies on, with the fake and with a real
// runtime if PODIUM_TEST_CRI names its socket and PODIUM_TEST_IMAGE an image in it
// that has sh.
func TestContract(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		r := crifake.New(crifake.Config{Images: []string{"app:1"}, Behave: func(s crifake.Start) crifake.Behaviour {
			return crifake.Behaviour{Exits: s.Container == "exits", ExitCode: 3, Deaf: s.Container == "deaf"}
		}})
		contract(t, r, r.ImageService(), "app:1")
	})
	t.Run("real", func(t *testing.T) {
		socket, image := os.Getenv("PODIUM_TEST_CRI"), os.Getenv("PODIUM_TEST_IMAGE")
		if socket == "" || image == "" {
			t.Skip("PODIUM_TEST_CRI and PODIUM_TEST_IMAGE name no runtime")
		}
		conn, err := cri.Connect(t.Context(), socket, cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		contract(t, conn.Runtime, conn.Images, image)
	})
}

// commands are the containers' commands by name; the fake uses only the name.
var commands = map[string][]string{
	"runs":  {"sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"},
	"exits": {"sh", "-c", "exit 3"},
	"deaf":  {"sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"},
}

func contract(t *testing.T, r cri.Runtime, images cri.Images, image string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	uid := fmt.Sprintf("contract-%d", os.Getpid())
	labels := map[string]string{cri.LabelPodUID: uid}
	box := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "contract", Namespace: "test", Uid: uid}, Labels: labels,
		LogDirectory: t.TempDir(), Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if res, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "localhost/no/such:image"}}); err != nil || res.Image != nil {
		t.Errorf("an absent image is an empty answer, not %v, %v", res, err)
	}
	present, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	must(err)
	made, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: box})
	must(err)
	defer func() {
		for range 2 { // the second call must not fail
			_, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: made.PodSandboxId})
			must(err)
		}
		for range 2 {
			_, err := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: made.PodSandboxId})
			must(err)
		}
		if _, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.PodSandboxId}); !cri.NotFound(err) {
			t.Errorf("a removed sandbox: %v, want not found", err)
		}
	}()
	st, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.PodSandboxId})
	must(err)
	if st.Status.Network.GetIp() == "" || st.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %+v", st.Status)
	}
	if _, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: box}); err == nil {
		t.Error("the same sandbox twice")
	}

	start := func(name string) string {
		t.Helper()
		c, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: made.PodSandboxId, SandboxConfig: box, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: present.Image.Id}, Command: commands[name],
			Labels: labels, Annotations: map[string]string{"a": "b"}, LogPath: filepath.Base(name) + ".log", Linux: &runtimeapi.LinuxContainerConfig{},
		}})
		must(err)
		if s := status(ctx, t, r, c.ContainerId); s.State != runtimeapi.ContainerState_CONTAINER_CREATED || s.StartedAt != 0 || s.Annotations["a"] != "b" {
			t.Errorf("a created container is %+v", s)
		}
		_, err = r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId})
		must(err)
		return c.ContainerId
	}
	runs, exits, deaf := start("runs"), start("exits"), start("deaf")
	if s := status(ctx, t, r, runs); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING || s.StartedAt == 0 {
		t.Errorf("a running container is %+v", s)
	}
	for s := status(ctx, t, r, exits); ; s = status(ctx, t, r, exits) {
		if s.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			if s.ExitCode != 3 || s.Reason != cri.ReasonError || s.FinishedAt == 0 {
				t.Errorf("an exited container is %+v", s)
			}
			break
		}
		must(ctx.Err())
	}
	list, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	must(err)
	if len(list.Containers) != 3 {
		t.Errorf("%d containers are listed", len(list.Containers))
	}
	for id, want := range map[string]int32{runs: 0, deaf: 137} {
		_, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
		must(err)
		if s := status(ctx, t, r, id); s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != want {
			t.Errorf("stopped: %+v, want exit code %d", s, want)
		}
	}
	_, err = r.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: runs})
	must(err)
	if _, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: runs}); !cri.NotFound(err) {
		t.Errorf("a removed container: %v, want not found", err)
	}
}

func status(ctx context.Context, t *testing.T, r cri.Runtime, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	res, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res.Status
}
