package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

const name = "default"

// Controller is the service account controller. Its keys are namespaces.
type Controller struct {
	cfg  kit.Kit
	loop *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{cfg: cfg}
	c.loop = cfg.Loop("serviceaccount", 0, c.reconcile, cfg.Views.Namespaces, cfg.Views.ServiceAccounts)
	loop.WakeOn(c.loop, cfg.Views.Namespaces, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.ServiceAccounts, func(sa *corev1.ServiceAccount) []loop.Key {
		if sa.Name != name {
			return nil
		}
		return []loop.Key{{Name: sa.Namespace}}
	})
	return c
}

// Run keeps the accounts until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := c.cfg.Views.Namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return loop.Done, nil
	}
	if _, ok := c.cfg.Views.ServiceAccounts.Get(ns.Name, name); ok {
		return loop.Done, nil
	}
	_, err := client.For[*corev1.ServiceAccount](c.cfg.Client).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return loop.Done, fmt.Errorf("create service account: %w", err)
	}
	return loop.Done, nil
}
