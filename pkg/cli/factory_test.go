package cli

import (
	"errors"
	"io/fs"
	"testing"

	"podium/pkg/client/kubeconfig"
)

// In a pod, podium acts as the pod, unless a kubeconfig or a flag names a cluster.
func TestAccessInAPod(t *testing.T) {
	pod := kubeconfig.New("in-cluster", kubeconfig.Cluster{Server: "https://pod"}, kubeconfig.User{Token: "pods"})
	pod.Contexts[0].Value.Namespace = "team"
	file := kubeconfig.New("file", kubeconfig.Cluster{Server: "https://file"}, kubeconfig.User{})
	for name, row := range map[string]struct {
		file              *kubeconfig.Config
		conn              connection
		podErr            error
		server, namespace string
		err               error
	}{
		"Pod":           {nil, connection{}, nil, "https://pod", "team", nil},
		"OtherToken":    {nil, connection{token: "mine", namespace: "x"}, nil, "https://pod", "x", nil},
		"File":          {file, connection{}, nil, "https://file", "default", nil},
		"Server":        {nil, connection{server: "https://flag"}, nil, "https://flag", "default", nil},
		"NoPod":         {nil, connection{}, kubeconfig.ErrNotInCluster, "", "default", errNoServer},
		"NoCredentials": {nil, connection{}, fs.ErrNotExist, "", "default", errNoServer},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/config"
			t.Setenv("KUBECONFIG", path)
			if row.file != nil {
				if err := row.file.Write(path, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := newFactory(IO{})
			f.conn, f.inPod = row.conn, func() (*kubeconfig.Config, error) { return pod, row.podErr }
			cfg, err := f.clientConfig()
			if !errors.Is(err, row.err) || err == nil && cfg.Servers[0] != row.server {
				t.Errorf("connects to %v, %v; want %q, %v", cfg.Servers, err, row.server, row.err)
			}
			if err == nil && row.server == "https://pod" {
				want := "pods"
				if row.conn.token != "" {
					want = row.conn.token
				}
				if token, err := cfg.Token(); err != nil || token != want {
					t.Errorf("authenticates with %q, %v; want %q", token, err, want)
				}
			}
			if namespace, _, err := f.Namespace(); err != nil || namespace != row.namespace {
				t.Errorf("namespace %q, %v; want %q", namespace, err, row.namespace)
			}
		})
	}
}
