// Package ttl annotates each node with the TTL of its kubelet's cache of Secrets and
// ConfigMaps, which grows with the number of nodes.
package ttl

import (
	"context"
	"math"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the TTL controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "ttl-controller", Workers: 5, New: build}
}

// step is a range of cluster sizes, in nodes, and its TTL. The ranges overlap, so that a
// cluster whose size varies a little keeps its TTL.
type step struct{ min, max, seconds int }

// steps are upstream's.
func steps() []step {
	return []step{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, math.MaxInt, 300}}
}

// next returns the step of a cluster of that many nodes that was at step at.
func next(at, nodes int) int {
	all := steps()
	for nodes > all[at].max {
		at++
	}
	for nodes < all[at].min {
		at--
	}
	return at
}

type reconciler struct {
	*loop.Loop
	nodes  *informer.Informer[*corev1.Node]
	writer controller.Writer[*corev1.Node]

	mu    sync.Mutex
	count int
	at    int // index in steps
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{nodes: informers.For[*corev1.Node](c.Informers)}
	r.Loop = c.NewLoop("ttl", 0, r.reconcile, r.nodes)
	r.writer = controller.NewWriter(c, r.Loop, r.nodes)
	loop.WakeOn(r.Loop, r.nodes, loop.Self)
	r.nodes.OnChange(r.resized)
	return r, nil
}

// resized counts the nodes and enqueues all of them when the TTL changes.
func (r *reconciler) resized(old, new *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case old == nil:
		r.count++
	case new == nil:
		r.count--
	}
	before := r.at
	if r.at = next(r.at, r.count); r.at != before {
		for _, n := range r.nodes.List() {
			r.Wake(loop.KeyOf(n))
		}
	}
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := r.nodes.Get("", key.Name)
	if !ok {
		return loop.Done, nil
	}
	r.mu.Lock()
	want := strconv.Itoa(steps()[r.at].seconds)
	r.mu.Unlock()
	if n.Annotations[corev1.ObjectTTLAnnotationKey] == want {
		return loop.Done, nil
	}
	_, err := r.writer.Patch(ctx, key, n, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{corev1.ObjectTTLAnnotationKey: want}},
	})
	return loop.Done, err
}
