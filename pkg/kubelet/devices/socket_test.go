package devices_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/devices/devicetest"
	"podium/pkg/kubelet/plugins"
)

// realPlugin is a plugin on a Unix socket.
type realPlugin struct {
	*devicetest.Plugin
	t    *testing.T
	root string
}

func (p *realPlugin) socket() string { return filepath.Join(p.root, "device-plugins", "gpu.sock") }

// listen serves the plugin until stop is called, which leaves the socket.
func (p *realPlugin) listen() (stop func()) {
	l, err := net.Listen("unix", p.socket())
	if err != nil {
		p.t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return p.Serve(l)
}

func (p *realPlugin) register() error {
	conn, err := plugins.Dial(filepath.Join(p.root, "device-plugins", "kubelet.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	return p.Register(p.t.Context(), conn, "gpu.sock")
}

// kubelet is a running Manager.
type kubelet struct {
	m         *devices.Manager
	listening chan struct{}
	reported  chan struct{}
}

func (p *realPlugin) kubelet() (k *kubelet, stop func()) {
	k = &kubelet{listening: make(chan struct{}), reported: make(chan struct{}, 100)}
	k.m = devices.New(devices.Config{Root: p.root, Log: slog.New(slog.DiscardHandler), Listen: func(socket string) (net.Listener, error) {
		l, err := net.Listen("unix", socket)
		close(k.listening)
		return l, err
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.m.Run(ctx, func([]types.UID) { k.reported <- struct{}{} }) }()
	return k, func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	}
}
