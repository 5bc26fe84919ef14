package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/cloud"
	"podium/pkg/controllers/loop"
)

// Lifecycle looks after nodes that are not ready.
type Lifecycle struct {
	cfg Config
	writer
}

// NewLifecycle builds the controller and says what wakes it; the views must
// not run yet.
func NewLifecycle(cfg Config) *Lifecycle {
	c := &Lifecycle{cfg: cfg}
	c.writer = writer{kit: cfg.Kit, nodes: client.For[*corev1.Node](cfg.Client)}
	c.loop = cfg.Loop("cloud_node_lifecycle_controller", 0, c.reconcile, cfg.Views.Nodes)
	loop.WakeOn(c.loop, cfg.Views.Nodes, loop.Self)
	return c
}

// Run looks after nodes until ctx ends.
func (c *Lifecycle) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Lifecycle) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := c.cfg.Views.Nodes.Get("", key.Name)
	if !ok || !mine(n, c.cfg.Provider.Name) {
		return loop.Done, nil
	}
	n = n.DeepCopy()
	if ready(n) {
		if !tainted(n, taintShutdown) {
			return loop.Done, nil
		}
		return loop.Done, c.setTaints(ctx, n, without(n, taintShutdown))
	}
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	off, err := c.cfg.Provider.Instances.Shutdown(ask, n)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return loop.Done, c.remove(ctx, n)
	case err != nil:
		return loop.Done, fmt.Errorf("ask provider %s whether the node's machine is there: %w", c.cfg.Provider.Name, err)
	case off && !tainted(n, taintShutdown):
		c.cfg.Log.Info("the node's machine is off", "node", n.Name)
		if err := c.setTaints(ctx, n, append(n.Spec.Taints, shutdown())); err != nil {
			return loop.Done, err
		}
	}
	return loop.After(c.cfg.Monitor), nil
}

// remove deletes the node as it was seen: not ready.
func (c *Lifecycle) remove(ctx context.Context, n *corev1.Node) error {
	c.cfg.Log.Info("the node's machine is gone", "node", n.Name, "providerID", n.Spec.ProviderID)
	c.cfg.Events.Eventf(n, corev1.EventTypeNormal, "DeletingNode", "Deleting node %s because it does not exist in the cloud provider", n.Name)
	seen := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}}
	err := c.nodes.Delete(ctx, n.Name, seen)
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("delete the node: %w", err)
}
