package cleanup

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// starting is a runtime with one pod, which cannot be removed at first.
type starting struct {
	cri.UnimplementedRuntimeServiceServer
	tries atomic.Int32
}

func (r *starting) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{Id: "a", Metadata: &cri.PodSandboxMetadata{Namespace: "default", Name: "a"}}}}, nil
}

func (r *starting) StopPodSandbox(context.Context, *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *starting) RemovePodSandbox(context.Context, *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	if r.tries.Add(1) < 3 {
		return nil, errors.New("container is in starting state, can't be removed")
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

func TestRemovePodsWaitsForAContainerThatStarts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, runtime := grpc.NewServer(), &starting{}
	cri.RegisterRuntimeServiceServer(server, runtime)
	go server.Serve(listener)
	defer server.Stop()
	if err := RemovePods(t.Context(), socket); err != nil || runtime.tries.Load() != 3 {
		t.Errorf("%d tries: %v", runtime.tries.Load(), err)
	}
}

func TestEndShims(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "containerd-shim-of-this-test")
	if err := os.Symlink("/bin/sh", program); err != nil {
		t.Fatal(err)
	}
	start := func(socket string) *exec.Cmd {
		cmd := exec.Command(program, "-c", "read line", "-address", socket)
		if _, err := cmd.StdinPipe(); err != nil { // keeps the process waiting for input
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	mine, others := filepath.Join(dir, "mine.sock"), filepath.Join(dir, "others.sock")
	lost, other := start(mine), start(others)
	go lost.Wait()

	if err := EndShims(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if left, err := shims(mine); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := shims(others); err != nil || !slices.Equal(left, []int{other.Process.Pid}) {
		t.Errorf("of another runtime there are %v, %v; want the one that was there", left, err)
	}
}
