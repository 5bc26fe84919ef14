package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cloud"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/loop"
)

// LifecycleSpec describes the controller of nodes that are not ready.
func LifecycleSpec(o Options) controller.Spec {
	return o.spec("cloud-node-lifecycle-controller", "cloud-node-lifecycle-controller", func(c controller.Context) controller.Runner {
		r := &lifecycle{}
		r.base = newBase(c, o, "cloud_node_lifecycle_controller", r.reconcile)
		return r
	})
}

type lifecycle struct{ base }

func (r *lifecycle) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := r.nodes.Get("", key.Name)
	if !ok || !managed(n, r.Provider.Name) {
		return loop.Done, nil
	}
	n = n.DeepCopy()
	if conditions.IsTrue(n.Status.Conditions, corev1.NodeReady) {
		if !tainted(n, taintShutdown) {
			return loop.Done, nil
		}
		return loop.Done, r.setTaints(ctx, n, without(n, taintShutdown))
	}
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	off, err := r.Provider.Instances.Shutdown(ask, n)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return loop.Done, r.remove(ctx, n)
	case err != nil:
		return loop.Done, fmt.Errorf("get the state of the instance from provider %s: %w", r.Provider.Name, err)
	case off && !tainted(n, taintShutdown):
		r.Log.Info("instance is shut down", "node", n.Name)
		if err := r.setTaints(ctx, n, append(n.Spec.Taints, shutdown())); err != nil {
			return loop.Done, err
		}
	}
	return loop.After(r.Monitor), nil
}

// remove deletes the node, provided that it has not changed since n.
func (r *lifecycle) remove(ctx context.Context, n *corev1.Node) error {
	r.Log.Info("instance does not exist, deleting node", "node", n.Name, "providerID", n.Spec.ProviderID)
	r.Events.Eventf(n, corev1.EventTypeNormal, "DeletingNode", "Deleting node %s because it does not exist in the cloud provider", n.Name)
	_, err := r.writer.Delete(ctx, loop.KeyOf(n), n, controller.Unchanged(n))
	return err
}
