package docker

import (
	"fmt"
	"strings"
	"testing"

	"podium/api/config/v1alpha1"
)

const whereFormat = "context inspect"

func TestWhereTheEngineIs(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///var/run/docker.sock": "", "npipe:////./pipe/docker_engine": "", "": "",
		"tcp://docker:2375": "docker", "tcp://127.0.0.1:2375": "", "tcp://localhost:2376": "", "tcp://[::1]:2375": "",
		"tcp://[2001:db8::5]:2376": "2001:db8::5", "ssh://ops@build-1": "build-1", "https://10.0.0.5:2376": "10.0.0.5",
	} {
		if got, err := machineOf(endpoint); err != nil || got != want {
			t.Errorf("%s is on %q, %v: want %q", endpoint, got, err, want)
		}
	}
	if _, err := machineOf("tcp://[::1"); err == nil {
		t.Error("no address at all is accepted")
	}
}

// The kubeconfig has the address of a remote engine's machine, and the
// apiserver's certificate is valid for it.
func TestAClusterOnAnEngineElsewhere(t *testing.T) {
	f := &engine{answers: map[string]string{whereFormat: "tcp://docker:2375\n", "inspect --format {{with index": "0.0.0.0 40001"}}
	e := f.engine()
	if server, err := e.server(t.Context(), NodeState{Name: "ci-control-plane"}); err != nil || server != "https://docker:40001" {
		t.Errorf("the apiserver is at %s, %v", server, err)
	}
	o := Options{Cluster: cluster(t), Engine: e}
	err := o.check(t.Context(), nil)
	want := "the engine is on docker, where the apiserver would be at 127.0.0.1, which cannot be reached from here\n    → choose networking.apiServerAddress: 0.0.0.0"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	o.Cluster.Networking.APIServerAddress = "0.0.0.0"
	if err := o.check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	c := creation{Options: o, nodes: []*node{{Node: v1alpha1.Node{Role: v1alpha1.ControlPlane}}}}
	if args := fmt.Sprint(c.controlPlaneArgs()); !strings.Contains(args, "--apiserver-cert-extra-sans 0.0.0.0,docker") {
		t.Errorf("the certificate is not for docker: %s", args)
	}

	f.answers[whereFormat] = "unix:///var/run/docker.sock\n"
	if server, err := e.server(t.Context(), NodeState{Name: "ci-control-plane"}); err != nil || server != "https://127.0.0.1:40001" {
		t.Errorf("on this machine's engine the apiserver is at %s, %v", server, err)
	}
}
