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

// API is the cluster, as one client sees it or two: on a worker its kube-proxy
// sees the cluster, and its kubelet changes the node.
type API struct {
	Cluster *client.Client
	Own     *client.Client
}

// Nodes are all nodes.
func (a API) Nodes(ctx context.Context) ([]*corev1.Node, error) {
	list, err := client.For[*corev1.Node](a.Cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Pods are those of a node.
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

// Cordon says whether a node takes new pods, and notes beside it why; an empty
// value takes the note away.
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

// look is how long to wait for what an eviction brings about.
const look = 250 * time.Millisecond

// Drain evicts what can go and returns when it has gone. The node must take no
// new pods by then. waiting is told what it waits for.
func (a API) Drain(ctx context.Context, node string, waiting func(string)) error {
	return poll.Until(ctx, look, func(ctx context.Context) error {
		err := a.step(ctx, node)
		if err != nil {
			waiting(err.Error())
		}
		return err
	})
}

// step evicts what may go now, and says what is still there.
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

// evict begins a pod's end, with the grace that it asks for.
func (a API) evict(ctx context.Context, p *corev1.Pod) error {
	uid := p.UID
	err := client.For[*corev1.Pod](a.Own).In(p.Namespace).Post(ctx, p.Name, "eviction", &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it went by itself
	}
	return err
}
