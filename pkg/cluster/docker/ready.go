package docker

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/poll"
	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// client returns a client with the administrator's credentials, for use on the
// host.
func (c *creation) client() (*client.Client, error) {
	config, err := kubeconfig.Load(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Client(ContextName(c.Cluster.Metadata.Name))
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "podium"
	return client.New(scheme.New(), cfg)
}

// nodesReady waits until every node is Ready.
func (c *creation) nodesReady(ctx context.Context, waiting func(string)) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	nodes := client.For[*corev1.Node](cl)
	return c.poll(ctx, waiting, func(ctx context.Context) error {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		state := map[string]error{}
		for _, n := range list.Items {
			state[n.Name] = poll.NodeReady(n)
		}
		for _, n := range c.nodes {
			err, registered := state[n.name]
			if !registered {
				return fmt.Errorf("node %s has not registered yet", n.name)
			}
			if err != nil {
				return fmt.Errorf("node %s: %w", n.name, err)
			}
		}
		return nil
	})
}

// namesServed waits until cluster DNS is available.
func (c *creation) namesServed(ctx context.Context, waiting func(string)) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	deployments := client.For[*appsv1.Deployment](cl).In("kube-system")
	return c.poll(ctx, waiting, func(ctx context.Context) error {
		d, err := deployments.Get(ctx, "cluster-dns")
		if err != nil {
			return err
		}
		if conditions.IsTrue(d.Status.Conditions, appsv1.DeploymentAvailable) {
			return nil
		}
		return fmt.Errorf("%d of %d pods of cluster-dns are available", d.Status.AvailableReplicas, *d.Spec.Replicas)
	})
}

// poll calls check until it returns nil, for at most c.Wait. It reports check's
// errors by waiting.
func (c *creation) poll(ctx context.Context, waiting func(string), check func(context.Context) error) error {
	return poll.Wait{For: c.Wait, Every: 50 * time.Millisecond, Report: waiting}.Until(ctx, check)
}
