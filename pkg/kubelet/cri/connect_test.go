package cri

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
)

func TestConnectReportsMissingCRI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer() // serves nothing, as containerd with the cri plugin disabled
	go server.Serve(ln)
	defer server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := Connect(ctx, "unix://"+socket, Options{}); err == nil || !strings.Contains(err.Error(), "does not serve CRI v1") {
		t.Errorf("%v", err)
	}
}

func TestAnAbsentRuntimeIsWaitedForAndThenNamed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, filepath.Join(t.TempDir(), "none"), Options{})
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
	if _, err := Connect(ctx, "tcp://1.2.3.4:5", Options{}); err == nil || !strings.Contains(err.Error(), "want unix://") {
		t.Errorf("%v", err)
	}
}
