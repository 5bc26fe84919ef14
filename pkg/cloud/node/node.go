package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cloud"
	"podium/pkg/controller"
	"podium/pkg/controller/loop"
)

// callTimeout is the timeout of one call of the provider.
const callTimeout = 30 * time.Second

// Options configure both controllers.
type Options struct {
	Provider *cloud.Provider // without Instances, the controllers are disabled
	Workers  int
	Refresh  time.Duration // between two checks of a node's addresses
	Monitor  time.Duration // between two checks of the instance of a node that is not ready
}

func (o Options) spec(name, component string, build func(controller.Context) controller.Runner) controller.Spec {
	s := controller.Spec{Name: name, Account: "cloud-node-controller", Component: component, Workers: o.Workers}
	if o.Provider.Instances != nil {
		s.New = func(c controller.Context) (controller.Runner, error) { return build(c), nil }
	}
	return s
}

// Spec describes the controller that initializes nodes and updates their addresses.
func Spec(o Options) controller.Spec {
	return o.spec("cloud-node-controller", "cloud-node-controller", func(c controller.Context) controller.Runner {
		r := &reconciler{due: map[types.UID]time.Time{}}
		r.base = newBase(c, o, "cloud_node_controller", r.reconcile)
		r.nodes.OnChange(r.forget)
		return r
	})
}

type reconciler struct {
	base
	mu  sync.Mutex
	due map[types.UID]time.Time // when to check a node's addresses again
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := r.nodes.Get("", key.Name)
	if !ok || !managed(n, r.Provider.Name) {
		return loop.Done, nil
	}
	fresh := tainted(n, taintNew)
	if left := r.left(n); left > 0 && !fresh {
		return loop.After(left), nil
	}
	ask, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	md, err := r.Provider.Instances.Metadata(ask, n)
	if err != nil {
		return loop.Done, fmt.Errorf("get the metadata of the instance from provider %s: %w", r.Provider.Name, err)
	}
	n = n.DeepCopy()
	if gone, err := r.updateAddresses(ctx, n, md); err != nil || gone {
		return loop.Done, err
	}
	if fresh {
		if gone, err := r.initialize(ctx, n, md); err != nil || gone {
			return loop.Done, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due[n.UID] = time.Now().Add(r.Refresh)
	return loop.After(r.Refresh), nil
}

// left returns the time until the next check of the node's addresses.
func (r *reconciler) left(n *corev1.Node) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.due[n.UID])
}

func (r *reconciler) forget(old, new *corev1.Node) {
	if old == nil || new != nil && new.UID == old.UID {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.due, old.UID)
}

// updateAddresses sets the node's addresses to those of its instance.
func (r *reconciler) updateAddresses(ctx context.Context, n *corev1.Node, md cloud.Metadata) (gone bool, err error) {
	want, err := addresses(n, md.Addresses)
	if err != nil {
		return false, err
	}
	if len(want) == 0 || equality.Semantic.DeepEqual(want, n.Status.Addresses) {
		return false, nil
	}
	return r.patch(ctx, n, nil, change{"status": change{"addresses": want}}, "status")
}

// initialize sets the node's provider ID and labels and removes the taint that keeps pods off
// it, in a single write.
func (r *reconciler) initialize(ctx context.Context, n *corev1.Node, md cloud.Metadata) (gone bool, err error) {
	spec := change{"taints": without(n, taintNew)}
	switch {
	case n.Spec.ProviderID == "":
		spec["providerID"] = md.ProviderID
	case n.Spec.ProviderID != md.ProviderID:
		return false, fmt.Errorf("the node has the provider ID %s, its machine has %s: delete the node, and its kubelet registers it again", n.Spec.ProviderID, md.ProviderID)
	}
	gone, err = r.patch(ctx, n, change{"labels": labels(md)}, change{"spec": spec})
	if err == nil && !gone {
		r.Log.Info("node initialized", "node", n.Name, "providerID", md.ProviderID, "zone", md.Zone)
		r.Events.Event(n, corev1.EventTypeNormal, "Synced", "Node synced successfully")
	}
	return gone, err
}
