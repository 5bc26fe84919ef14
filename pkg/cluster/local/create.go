package local

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/poll"
	"podium/pkg/cluster/progress"
	"podium/pkg/scheme"
)

// Create creates the cluster, or changes it to match cfg, and blocks until its
// node is Ready and cluster DNS works. It is idempotent, also after a crash: it
// keeps processes that match cfg and starts the others.
func Create(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if err := cfg.claim(); err != nil {
		return err
	}
	steps := progress.Start(cfg.Out)
	plain := func(f func(context.Context) error) func(context.Context, func(string)) error {
		return func(ctx context.Context, _ func(string)) error { return f(ctx) }
	}
	for _, step := range []struct {
		name string
		run  func(context.Context, func(string)) error
	}{
		{"certificates and kubeconfigs", plain(cfg.identities)},
		{"daemons started", plain(cfg.startAll)},
		{"images loaded", plain(cfg.loadImages)},
		{"kube-apiserver ready", cfg.apiserverReady},
		{"cluster-dns applied", plain(cfg.applyDNS)},
		{"metrics-server applied", plain(cfg.applyMetrics)},
		{"storage class created", plain(cfg.createStorageClass)},
		{"node marked as control plane", cfg.markControlPlane},
		{"node " + cfg.Node + " Ready", cfg.nodeReady},
		{"kubelet serves", cfg.kubeletServes},
		{"cluster-dns answers", cfg.dnsAnswers},
	} {
		if err := steps.Do(ctx, step.name, step.run); err != nil {
			return err
		}
	}
	steps.Total("cluster " + cfg.Name + " is up")
	return nil
}

func (c *Config) startAll(ctx context.Context) error {
	containerd, err := c.containerdProcess(ctx)
	if err != nil {
		return err
	}
	for _, p := range append([]process{containerd}, c.daemons()...) {
		if err := c.start(ctx, p); err != nil {
			return err
		}
	}
	wait, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return poll.Until(wait, 20*time.Millisecond, c.containerdAnswers)
}

// client returns a client with the administrator's credentials.
func (c *Config) client() (*client.Client, error) {
	config, err := kubeconfig.Load(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Client("")
	if err != nil {
		return nil, err
	}
	return client.New(scheme.New(), cfg)
}

// alive returns an error if one of the processes has exited.
func (c *Config) alive(names ...string) error {
	for _, name := range names {
		r, err := c.running(name)
		if err != nil {
			return err
		}
		if r == nil {
			return fmt.Errorf("%s has ended; see %s", name, c.logFile(name))
		}
	}
	return nil
}

// wait calls check until it returns nil, one of the needed processes exits, or
// c.Wait is over.
func (c *Config) wait(ctx context.Context, waiting func(string), check func(context.Context) error, needs ...string) error {
	failed := func(context.Context) error { return c.alive(needs...) }
	return poll.Wait{For: c.Wait, Every: 20 * time.Millisecond, Report: waiting, Failed: failed}.Until(ctx, check)
}

func (c *Config) apiserverReady(ctx context.Context, waiting func(string)) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return c.wait(ctx, waiting, func(ctx context.Context) error {
		_, _, err := cl.Do(ctx, client.Request{Method: "GET", Path: "/readyz"})
		return err
	}, "kube-apiserver")
}

// markControlPlane labels the node as a control plane: its address is the API
// server's, and only a control plane gets a kubelet serving certificate for
// that. It does not taint the node.
func (c *Config) markControlPlane(ctx context.Context, waiting func(string)) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	nodes := client.For[*corev1.Node](cl)
	return c.wait(ctx, waiting, func(ctx context.Context) error {
		_, err := nodes.Patch(ctx, c.Node, types.MergePatchType, []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`))
		return err
	}, "kube-apiserver", "kubelet")
}

func (c *Config) nodeReady(ctx context.Context, waiting func(string)) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return c.wait(ctx, waiting, poll.Node(cl, c.Node, poll.NodeReady), "kube-apiserver", "kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager")
}

// kubeletServes waits for the kubelet's serving certificate, which kubectl logs
// needs: the kubelet requests it after it has registered the node.
func (c *Config) kubeletServes(ctx context.Context, waiting func(string)) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return c.wait(ctx, waiting, func(ctx context.Context) error {
		_, _, err := cl.Do(ctx, client.Request{Method: "GET", Path: "/api/v1/nodes/" + c.Node + "/proxy/healthz"})
		return err
	}, "kube-apiserver", "kubelet", "kube-controller-manager")
}
