package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/cloud"
	"podium/pkg/conditions"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Finalizer keeps a Service until its load balancer is deleted.
const Finalizer = "service.kubernetes.io/load-balancer-cleanup"

// The controller retries a failed call of the provider after this long, doubling
// up to the maximum.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Spec describes the service controller. It is disabled if lb is nil.
func Spec(workers int, lb cloud.LoadBalancers) controller.Spec {
	s := controller.Spec{Name: "service-lb-controller", Account: "service-controller", Workers: workers}
	if lb != nil {
		s.New = func(c controller.Context) (controller.Runner, error) { return build(c, lb), nil }
	}
	return s
}

type reconciler struct {
	controller.Context
	*loop.Loop
	balancers cloud.LoadBalancers
	services  *informer.Informer[*corev1.Service]
	nodes     *informer.Informer[*corev1.Node]
	writer    controller.Writer[*corev1.Service]

	mu     sync.Mutex
	made   map[loop.Key]made     // result of the last Ensure
	failed map[loop.Key]struct{} // retried when another Service releases something
}

// made is a load balancer as Ensure returned it, with its inputs.
type made struct {
	from   string // the Service's fingerprint
	nodes  string
	status corev1.LoadBalancerStatus
}

func build(c controller.Context, lb cloud.LoadBalancers) *reconciler {
	r := &reconciler{
		Context: c, balancers: lb, made: map[loop.Key]made{}, failed: map[loop.Key]struct{}{},
		services: informers.For[*corev1.Service](c.Informers), nodes: informers.For[*corev1.Node](c.Informers),
	}
	r.Loop = loop.New(loop.Config{
		Name: "service", Workers: c.Workers, Reconcile: r.reconcile, Synced: []loop.Syncer{r.services, r.nodes},
		MinBackoff: firstRetry, MaxBackoff: lastRetry, Log: c.Log, Metrics: c.Metrics,
	})
	r.writer = controller.NewWriter(c, r.Loop, r.services)
	loop.WakeOn(r.Loop, r.services, loop.Self)
	r.nodes.OnChange(func(old, new *corev1.Node) {
		if balances(old) != balances(new) {
			r.wakeAll()
		}
	})
	return r
}

func (r *reconciler) wakeAll() {
	for _, s := range r.services.List() {
		if wanted(s) {
			r.Wake(loop.KeyOf(s))
		}
	}
}

// wanted reports whether this controller provides a load balancer for a Service.
func wanted(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

// balances reports whether a load balancer may send traffic to a node.
func balances(n *corev1.Node) bool {
	if n == nil || n.DeletionTimestamp != nil {
		return false
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return false
	}
	leaves := func(t corev1.Taint) bool { return t.Key == "ToBeDeletedByClusterAutoscaler" }
	return !slices.ContainsFunc(n.Spec.Taints, leaves) && conditions.IsTrue(n.Status.Conditions, corev1.NodeReady)
}

func (r *reconciler) targets() []*corev1.Node {
	return slices.DeleteFunc(r.nodes.List(), func(n *corev1.Node) bool { return !balances(n) })
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	s, ok := r.services.Get(key.Namespace, key.Name)
	if !ok {
		r.forget(key)
		return loop.Done, nil
	}
	var err error
	switch {
	case wanted(s):
		err = r.ensure(ctx, key, s)
	case slices.Contains(s.Finalizers, Finalizer):
		err = r.remove(ctx, key, s)
	}
	return loop.Done, r.outcome(ctx, key, s, err)
}

// outcome records a failure in an event and for wakeFailed, or clears it.
func (r *reconciler) outcome(ctx context.Context, key loop.Key, s *corev1.Service, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.failed, key)
		return nil
	}
	r.failed[key] = struct{}{}
	if ctx.Err() == nil && !apierrors.IsConflict(err) {
		r.event(corev1.EventTypeWarning, s, "SyncLoadBalancerFailed", "Error syncing load balancer: "+err.Error())
	}
	return err
}

func (r *reconciler) event(eventType string, s *corev1.Service, reason, text string) {
	r.Events.Event(s, eventType, reason, text)
}

func (r *reconciler) forget(key loop.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.made, key)
	delete(r.failed, key)
}

// ensure calls the provider's Ensure, unless nothing has changed since the last call.
func (r *reconciler) ensure(ctx context.Context, key loop.Key, s *corev1.Service) error {
	if !slices.Contains(s.Finalizers, Finalizer) {
		_, err := r.setFinalizers(ctx, key, s, append(slices.Clone(s.Finalizers), Finalizer))
		return err // the write enqueues the key
	}
	nodes := r.targets()
	r.mu.Lock()
	was, known := r.made[key]
	r.mu.Unlock()
	now := made{from: fingerprint(s), nodes: fmt.Sprint(names(nodes)), status: was.status}
	if !known || now.from != was.from || now.nodes != was.nodes {
		moved := known && now.from == was.from // only the nodes changed
		if !moved {
			r.event(corev1.EventTypeNormal, s, "EnsuringLoadBalancer", "Ensuring load balancer")
		}
		if len(nodes) == 0 {
			r.event(corev1.EventTypeWarning, s, "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
		}
		var err error
		if now.status, err = r.balancers.Ensure(ctx, s, nodes); err != nil {
			return fmt.Errorf("failed to ensure load balancer: %w", err)
		}
		if moved {
			r.event(corev1.EventTypeNormal, s, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
		} else {
			r.event(corev1.EventTypeNormal, s, "EnsuredLoadBalancer", "Ensured load balancer")
		}
		r.mu.Lock()
		r.made[key] = now
		r.mu.Unlock()
	}
	_, err := r.setStatus(ctx, key, s, now.status)
	return err
}

// fingerprint encodes the parts of a Service that a provider may depend on.
func fingerprint(s *corev1.Service) string {
	text, err := json.Marshal(struct {
		UID         types.UID
		Spec        corev1.ServiceSpec
		Annotations map[string]string
	}{s.UID, s.Spec, s.Annotations})
	if err != nil {
		return s.ResourceVersion // treat every change as relevant
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

// remove calls the provider's Delete and removes the finalizer.
func (r *reconciler) remove(ctx context.Context, key loop.Key, s *corev1.Service) error {
	r.event(corev1.EventTypeNormal, s, "DeletingLoadBalancer", "Deleting load balancer")
	r.forget(key)
	if err := r.balancers.Delete(ctx, s); err != nil {
		return fmt.Errorf("failed to delete load balancer: %w", err)
	}
	kept, err := r.setStatus(ctx, key, s, corev1.LoadBalancerStatus{})
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == Finalizer })
	if _, err := r.setFinalizers(ctx, key, kept, rest); err != nil {
		return err
	}
	r.event(corev1.EventTypeNormal, s, "DeletedLoadBalancer", "Deleted load balancer")
	r.wakeFailed()
	return nil
}

// wakeFailed retries the Services that may have lacked what was released.
func (r *reconciler) wakeFailed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.failed {
		r.Wake(key)
	}
}

// setFinalizers replaces the finalizers, provided that the Service has not changed since s.
func (r *reconciler) setFinalizers(ctx context.Context, key loop.Key, s *corev1.Service, list []string) (*corev1.Service, error) {
	return r.patch(ctx, key, s, map[string]any{"metadata": map[string]any{
		"resourceVersion": s.ResourceVersion, "finalizers": list,
	}})
}

func (r *reconciler) setStatus(ctx context.Context, key loop.Key, s *corev1.Service, status corev1.LoadBalancerStatus) (*corev1.Service, error) {
	if equality.Semantic.DeepEqual(s.Status.LoadBalancer, status) {
		return s, nil
	}
	var lb any // null removes it
	if len(status.Ingress) > 0 {
		lb = status
	}
	return r.patch(ctx, key, s, map[string]any{"status": map[string]any{"loadBalancer": lb}}, "status")
}

// patch patches a Service and returns the result, or s if it no longer exists.
func (r *reconciler) patch(ctx context.Context, key loop.Key, s *corev1.Service, patch map[string]any, subresource ...string) (*corev1.Service, error) {
	got, err := r.writer.Patch(ctx, key, s, types.MergePatchType, patch, subresource...)
	if got == nil {
		return s, err
	}
	return got, nil
}
