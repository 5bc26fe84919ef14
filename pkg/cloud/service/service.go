package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/cloud"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Finalizer keeps a Service until its load balancer is gone. It is upstream's.
const Finalizer = "service.kubernetes.io/load-balancer-cleanup"

// A provider that fails is asked again after this long, doubling up to the
// maximum.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Config is what the controller needs.
type Config struct {
	kit.Kit
	LoadBalancers cloud.LoadBalancers
}

// Controller is the service controller.
type Controller struct {
	cfg      Config
	services client.Resource[*corev1.Service]
	loop     *loop.Loop

	mu     sync.Mutex
	made   map[loop.Key]made     // what the provider was last asked for, with success
	failed map[loop.Key]struct{} // those whose turn may come when another gives something back
}

// made is a load balancer as it was made.
type made struct {
	from   string // the Service, as far as it matters to a provider
	nodes  string
	status corev1.LoadBalancerStatus
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{
		cfg: cfg, services: client.For[*corev1.Service](cfg.Client),
		made: map[loop.Key]made{}, failed: map[loop.Key]struct{}{},
	}
	v := cfg.Views
	c.loop = loop.New(loop.Config{
		Name: "service", Workers: cfg.Workers, Reconcile: c.reconcile, Synced: []loop.Syncer{v.Services, v.Nodes},
		MinBackoff: firstRetry, MaxBackoff: lastRetry, Log: cfg.Log, Metrics: cfg.Metrics,
	})
	loop.WakeOn(c.loop, v.Services, loop.Self)
	v.Nodes.OnChange(func(old, new *corev1.Node) {
		if balances(old) != balances(new) {
			c.wakeAll()
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) wakeAll() {
	for _, s := range c.cfg.Views.Services.List() {
		if wanted(s) {
			c.loop.Wake(loop.KeyOf(s))
		}
	}
}

// wanted says whether a Service is to have a load balancer of ours.
func wanted(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

// balances says whether a load balancer may send traffic to a node.
func balances(n *corev1.Node) bool {
	if n == nil || n.DeletionTimestamp != nil {
		return false
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return false
	}
	leaves := func(t corev1.Taint) bool { return t.Key == "ToBeDeletedByClusterAutoscaler" }
	ready := func(x corev1.NodeCondition) bool {
		return x.Type == corev1.NodeReady && x.Status == corev1.ConditionTrue
	}
	return !slices.ContainsFunc(n.Spec.Taints, leaves) && slices.ContainsFunc(n.Status.Conditions, ready)
}

func (c *Controller) nodes() []*corev1.Node {
	return slices.DeleteFunc(c.cfg.Views.Nodes.List(), func(n *corev1.Node) bool { return !balances(n) })
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	s, ok := c.cfg.Views.Services.Get(key.Namespace, key.Name)
	if !ok {
		c.forget(key)
		return loop.Done, nil
	}
	var err error
	switch {
	case wanted(s):
		err = c.ensure(ctx, key, s)
	case slices.Contains(s.Finalizers, Finalizer):
		err = c.remove(ctx, key, s)
	}
	return loop.Done, c.outcome(ctx, key, s, err)
}

// outcome tells of a failure, and remembers whom to try again when there is
// reason to.
func (c *Controller) outcome(ctx context.Context, key loop.Key, s *corev1.Service, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.failed, key)
		return nil
	}
	c.failed[key] = struct{}{}
	if ctx.Err() == nil && !apierrors.IsConflict(err) {
		c.warn(s, "SyncLoadBalancerFailed", "Error syncing load balancer: "+err.Error())
	}
	return err
}

func (c *Controller) warn(s *corev1.Service, reason, text string) {
	c.cfg.Events.Event(s, corev1.EventTypeWarning, reason, text)
}

func (c *Controller) tell(s *corev1.Service, reason, text string) {
	c.cfg.Events.Event(s, corev1.EventTypeNormal, reason, text)
}

func (c *Controller) forget(key loop.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, key)
	delete(c.failed, key)
}

// ensure has the provider make what the Service asks for, unless it did so
// before and nothing has changed since.
func (c *Controller) ensure(ctx context.Context, key loop.Key, s *corev1.Service) error {
	if !slices.Contains(s.Finalizers, Finalizer) {
		_, err := c.setFinalizers(ctx, key, s, append(slices.Clone(s.Finalizers), Finalizer))
		return err // the write wakes us
	}
	nodes := c.nodes()
	c.mu.Lock()
	was, known := c.made[key]
	c.mu.Unlock()
	now := made{from: fingerprint(s), nodes: fmt.Sprint(names(nodes)), status: was.status}
	if !known || now.from != was.from || now.nodes != was.nodes {
		moved := known && now.from == was.from // only the nodes are others
		if !moved {
			c.tell(s, "EnsuringLoadBalancer", "Ensuring load balancer")
		}
		if len(nodes) == 0 {
			c.warn(s, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
		}
		var err error
		if now.status, err = c.cfg.LoadBalancers.Ensure(ctx, s, nodes); err != nil {
			return fmt.Errorf("failed to ensure load balancer: %w", err)
		}
		if moved {
			c.tell(s, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
		} else {
			c.tell(s, "EnsuredLoadBalancer", "Ensured load balancer")
		}
		c.mu.Lock()
		c.made[key] = now
		c.mu.Unlock()
	}
	_, err := c.setStatus(ctx, key, s, now.status)
	return err
}

// fingerprint is what a provider may depend on of a Service.
func fingerprint(s *corev1.Service) string {
	text, err := json.Marshal(struct {
		UID         types.UID
		Spec        corev1.ServiceSpec
		Annotations map[string]string
	}{s.UID, s.Spec, s.Annotations})
	if err != nil {
		return s.ResourceVersion // every change counts then
	}
	return string(text)
}

func names(nodes []*corev1.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// remove has the provider remove the load balancer, and lets go of the Service.
func (c *Controller) remove(ctx context.Context, key loop.Key, s *corev1.Service) error {
	c.tell(s, "DeletingLoadBalancer", "Deleting load balancer")
	c.forget(key)
	if err := c.cfg.LoadBalancers.Delete(ctx, s); err != nil {
		return fmt.Errorf("failed to delete load balancer: %w", err)
	}
	kept, err := c.setStatus(ctx, key, s, corev1.LoadBalancerStatus{})
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == Finalizer })
	if _, err := c.setFinalizers(ctx, key, kept, rest); err != nil {
		return err
	}
	c.tell(s, "DeletedLoadBalancer", "Deleted load balancer")
	c.wakeFailed()
	return nil
}

// wakeFailed tries those again that may have lacked what was given back.
func (c *Controller) wakeFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.failed {
		c.loop.Wake(key)
	}
}

// setFinalizers replaces the list on condition that nobody else did.
func (c *Controller) setFinalizers(ctx context.Context, key loop.Key, s *corev1.Service, list []string) (*corev1.Service, error) {
	return c.patch(ctx, key, s, map[string]any{"metadata": map[string]any{
		"uid": s.UID, "resourceVersion": s.ResourceVersion, "finalizers": list,
	}})
}

func (c *Controller) setStatus(ctx context.Context, key loop.Key, s *corev1.Service, status corev1.LoadBalancerStatus) (*corev1.Service, error) {
	if apiequality.Semantic.DeepEqual(s.Status.LoadBalancer, status) {
		return s, nil
	}
	var lb any // null: there is none
	if len(status.Ingress) > 0 {
		lb = status
	}
	return c.patch(ctx, key, s, map[string]any{"metadata": map[string]any{"uid": s.UID}, "status": map[string]any{"loadBalancer": lb}}, "status")
}

// patch writes a part of a Service, and returns what it has become. One that is
// gone needs nothing any more.
func (c *Controller) patch(ctx context.Context, key loop.Key, s *corev1.Service, patch map[string]any, subresource ...string) (*corev1.Service, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	got, err := c.services.In(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, data, subresource...)
	if apierrors.IsNotFound(err) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to patch service: %w", err)
	}
	c.loop.Wrote(key, c.cfg.Views.Services, got.ResourceVersion)
	return got, nil
}
