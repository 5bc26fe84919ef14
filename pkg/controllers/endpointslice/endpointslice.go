package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	MaxSize int           // endpoints per slice; default 100
	Batch   time.Duration // between two writes for one service; default 20 ms
}

// Controller is the endpointslice controller.
type Controller struct {
	cfg    Config
	slices client.Resource[*discoveryv1.EndpointSlice]
	loop   *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	if cfg.MaxSize <= 0 {
		cfg.MaxSize = 100
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 20 * time.Millisecond
	}
	c := &Controller{cfg: cfg, slices: client.For[*discoveryv1.EndpointSlice](cfg.Client)}
	v := cfg.Views
	c.loop = cfg.Loop("endpoint_slice", cfg.Batch, c.reconcile, v.Services, v.Pods, v.EndpointSlices, v.Nodes)
	loop.WakeOn(c.loop, v.Services, loop.Self)
	loop.WakeOn(c.loop, v.EndpointSlices, serviceOf)
	v.WakeServices(c.loop.Wake, backends.Same)
	v.Nodes.OnChange(c.nodeMoved)
	return c
}

// Run keeps the slices until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// serviceOf names the service of a slice that is ours.
func serviceOf(es *discoveryv1.EndpointSlice) []loop.Key {
	if es.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
		return nil
	}
	return []loop.Key{{Namespace: es.Namespace, Name: es.Labels[discoveryv1.LabelServiceName]}}
}

// nodeMoved wakes the services of a node's pods when its zone changes.
func (c *Controller) nodeMoved(old, new *corev1.Node) {
	if old == nil || new == nil || zoneOf(old) == zoneOf(new) {
		return
	}
	for _, p := range c.cfg.Views.PodsOn(new.Name) {
		for _, s := range c.cfg.Views.ServicesSelecting(p.Namespace, p.Labels) {
			c.loop.Wake(loop.KeyOf(s))
		}
	}
}

func zoneOf(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	s, ok := c.cfg.Views.Services.Get(key.Namespace, key.Name)
	if !ok || !backends.Wanted(s) {
		return loop.Done, nil // slices of a service that is gone belong to the garbage collector
	}
	members := c.cfg.Views.PodsMatching(s.Namespace, s.Spec.Selector)
	return loop.Done, c.apply(ctx, s, decide(s, desired(s, members, c.zone), c.ours(s), c.cfg.MaxSize))
}

func (c *Controller) zone(node string) string {
	if n, ok := c.cfg.Views.Nodes.Get("", node); ok {
		return zoneOf(n)
	}
	return ""
}

// ours are the slices that this controller made for this service and not for
// one that had its name before.
func (c *Controller) ours(s *corev1.Service) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, es := range c.cfg.Views.SlicesOf(s.Namespace, s.Name) {
		if es.Labels[discoveryv1.LabelManagedBy] == ManagedBy && es.DeletionTimestamp == nil && metav1.IsControlledBy(es, s) {
			out = append(out, es)
		}
	}
	return out
}

func (c *Controller) apply(ctx context.Context, s *corev1.Service, todo plan) error {
	var errs []error
	for _, es := range todo.Create {
		errs = append(errs, c.create(ctx, s, es))
	}
	for _, es := range todo.Update {
		got, err := c.slices.Update(ctx, es)
		if err != nil {
			errs = append(errs, fmt.Errorf("update slice %s: %w", es.Name, err))
			continue
		}
		c.wrote(s, got)
	}
	if err := errors.Join(errs...); err != nil {
		if !apierrors.IsConflict(err) {
			c.cfg.Events.Eventf(s, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
				"Error updating Endpoint Slices for Service %s/%s: %v", s.Namespace, s.Name, err)
		}
		return err // what is to go may still be needed
	}
	for _, es := range todo.Delete {
		if err := c.delete(ctx, s, es); err != nil {
			return err
		}
	}
	return nil
}

// create makes a slice under the name that decide gave it. Should the name be
// taken by one of ours that the view does not show yet, that is it; should it
// be taken by somebody else's, the server picks another.
func (c *Controller) create(ctx context.Context, s *corev1.Service, es *discoveryv1.EndpointSlice) error {
	got, err := c.slices.Create(ctx, es)
	if apierrors.IsAlreadyExists(err) {
		live, getErr := c.slices.In(es.Namespace).Get(ctx, es.Name)
		if getErr != nil {
			return fmt.Errorf("slice %s is said to exist: %w", es.Name, getErr)
		}
		if metav1.IsControlledBy(live, s) && live.Labels[discoveryv1.LabelManagedBy] == ManagedBy {
			c.wrote(s, live)
			return nil
		}
		es.Name = ""
		got, err = c.slices.Create(ctx, es)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create slice: %w", err)
	}
	c.wrote(s, got)
	return nil
}

func (c *Controller) delete(ctx context.Context, s *corev1.Service, es *discoveryv1.EndpointSlice) error {
	err := c.slices.In(es.Namespace).Delete(ctx, es.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(es.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete slice %s: %w", es.Name, err)
	}
	c.loop.Wait(loop.KeyOf(s), func() bool {
		now, ok := c.cfg.Views.EndpointSlices.Get(es.Namespace, es.Name)
		return !ok || now.UID != es.UID || now.DeletionTimestamp != nil
	})
	return nil
}

func (c *Controller) wrote(s *corev1.Service, es *discoveryv1.EndpointSlice) {
	c.loop.Wrote(loop.KeyOf(s), c.cfg.Views.EndpointSlices, es.ResourceVersion)
}
