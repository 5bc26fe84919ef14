package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/cluster/poll"
)

// API holds the clients of a drain. Cluster reads nodes and EndpointSlices; Own
// reads and evicts the node's pods and patches the node. On a worker they are
// kube-proxy's and the kubelet's, on a control plane they may be the same.
type API struct {
	Cluster *client.Client
	Own     *client.Client
}

// Nodes returns all nodes.
func (a API) Nodes(ctx context.Context) ([]*corev1.Node, error) {
	list, err := client.For[*corev1.Node](a.Cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Pods returns the pods of a node in all namespaces.
func (a API) Pods(ctx context.Context, node string) ([]*corev1.Pod, error) {
	list, err := client.For[*corev1.Pod](a.Own).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (a API) slices(ctx context.Context) ([]*discoveryv1.EndpointSlice, error) {
	list, err := client.For[*discoveryv1.EndpointSlice](a.Cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Cordon cordons or uncordons a node, and sets the annotation note to value. An
// empty value removes the annotation.
func (a API) Cordon(ctx context.Context, node string, cordoned bool, note, value string) error {
	annotation, unschedulable := any(value), any(true)
	if value == "" {
		annotation = nil
	}
	if !cordoned {
		unschedulable = nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{note: annotation}},
		"spec":     map[string]any{"unschedulable": unschedulable},
	})
	if err != nil {
		return err
	}
	_, err = client.For[*corev1.Node](a.Own).Patch(ctx, node, types.MergePatchType, patch)
	return err
}

// look is the interval between two steps of a drain.
const look = 250 * time.Millisecond

// Drain evicts pods and blocks until they have terminated or ctx ends. It also
// evicts pods without a controller. The node must be cordoned before. Drain
// calls waiting with what it waits for.
func (a API) Drain(ctx context.Context, node string, waiting func(string)) error {
	return poll.Until(ctx, look, func(ctx context.Context) error {
		err := a.step(ctx, node)
		if err != nil {
			waiting(err.Error())
		}
		return err
	})
}

// step evicts the pods that may be evicted now. It returns an error that lists
// the pods that are left.
func (a API) step(ctx context.Context, node string) error {
	nodes, err := a.Nodes(ctx)
	if err != nil {
		return err
	}
	pods, err := a.Pods(ctx, node)
	if err != nil {
		return err
	}
	all, err := a.slices(ctx)
	if err != nil {
		return err
	}
	leaving := map[types.UID]bool{}
	for _, p := range pods {
		leaving[p.UID] = p.DeletionTimestamp != nil
	}
	var still []error
	sorted := Sort(node, pods, nodes)
	for _, p := range append(sorted.Go, sorted.Lost...) {
		if !leaving[p.UID] {
			service := needed(p, leaving, all)
			if service != "" {
				still = append(still, fmt.Errorf("pod %s/%s: Service %s has no other endpoint that is ready", p.Namespace, p.Name, service))
				continue
			}
			if err := a.evict(ctx, p); err != nil {
				still = append(still, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err))
				continue
			}
			leaving[p.UID] = true
		}
		still = append(still, fmt.Errorf("pod %s/%s is ending", p.Namespace, p.Name))
	}
	return errors.Join(still...)
}

// evict creates an eviction with the pod's own grace period.
func (a API) evict(ctx context.Context, p *corev1.Pod) error {
	uid := p.UID
	err := client.For[*corev1.Pod](a.Own).In(p.Namespace).Post(ctx, p.Name, "eviction", &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod is gone or was replaced
	}
	return err
}
