package endpoints

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/controllers/backends"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Config is what the controller needs.
type Config struct {
	kit.Kit
	Batch time.Duration // between two writes of one object; default 20 ms
}

// Controller is the endpoints controller.
type Controller struct {
	cfg       Config
	endpoints client.Resource[*corev1.Endpoints]
	loop      *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	if cfg.Batch <= 0 {
		cfg.Batch = 20 * time.Millisecond
	}
	c := &Controller{cfg: cfg, endpoints: client.For[*corev1.Endpoints](cfg.Client)}
	c.loop = cfg.Loop("endpoint", cfg.Batch, c.reconcile, cfg.Views.Services, cfg.Views.Pods, cfg.Views.Endpoints)
	loop.WakeOn(c.loop, cfg.Views.Services, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.Endpoints, loop.Self)
	cfg.Views.WakeServices(c.loop.Wake, backends.Same)
	return c
}

// Run keeps the endpoints until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	have, exists := c.cfg.Views.Endpoints.Get(key.Namespace, key.Name)
	s, ok := c.cfg.Views.Services.Get(key.Namespace, key.Name)
	if !ok {
		if exists && have.Labels[managedBy] == manager {
			return loop.Done, c.delete(ctx, have)
		}
		return loop.Done, nil
	}
	if !backends.Wanted(s) {
		return loop.Done, nil
	}
	if !exists {
		have = nil
	}
	want, change := decide(s, c.cfg.Views.PodsMatching(s.Namespace, s.Spec.Selector), have)
	if !change {
		return loop.Done, nil
	}
	return loop.Done, c.write(ctx, s, want, exists)
}

func (c *Controller) write(ctx context.Context, s *corev1.Service, want *corev1.Endpoints, exists bool) error {
	write, reason, what := c.endpoints.Create, "FailedToCreateEndpoint", "Failed to create endpoint for service"
	if exists {
		write, reason, what = c.endpoints.Update, "FailedToUpdateEndpoint", "Failed to update endpoint"
	}
	got, err := write(ctx, want)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			c.cfg.Events.Eventf(want, corev1.EventTypeWarning, reason, "%s %s/%s: %v", what, s.Namespace, s.Name, err)
		}
		return fmt.Errorf("write endpoints: %w", err)
	}
	c.loop.Wrote(loop.KeyOf(s), c.cfg.Views.Endpoints, got.ResourceVersion)
	return nil
}

func (c *Controller) delete(ctx context.Context, have *corev1.Endpoints) error {
	err := c.endpoints.In(have.Namespace).Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete endpoints: %w", err)
	}
	return nil
}
