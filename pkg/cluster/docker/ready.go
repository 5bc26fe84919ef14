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
	"podium/pkg/scheme"
)

// client speaks to the cluster as its administrator, from the host.
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

// nodesReady waits until every node is.
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

// namesServed waits until the cluster's name servers are available.
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
		for _, cond := range d.Status.Conditions {
			if cond.Type == appsv1.DeploymentAvailable && cond.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%d of %d pods of cluster-dns are available", d.Status.AvailableReplicas, *d.Spec.Replicas)
	})
}

// poll asks until check passes, or the configured patience ends.
func (c *creation) poll(ctx context.Context, waiting func(string), check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	err := poll.Until(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		err := check(ctx)
		if err != nil && ctx.Err() == nil {
			waiting(err.Error())
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("after %s (--wait): %w", c.Wait, err)
	}
	return err
}
