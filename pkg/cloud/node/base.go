package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// base is what both controllers share.
type base struct {
	controller.Context
	Options
	*loop.Loop
	nodes  *informer.Informer[*corev1.Node]
	writer controller.Writer[*corev1.Node]
}

func newBase(c controller.Context, o Options, name string, reconcile loop.Reconcile) base {
	b := base{Context: c, Options: o, nodes: informers.For[*corev1.Node](c.Informers)}
	b.Loop = c.NewLoop(name, 0, reconcile, b.nodes)
	b.writer = controller.NewWriter(c, b.Loop, b.nodes)
	loop.WakeOn(b.Loop, b.nodes, loop.Self)
	return b
}

type change = map[string]any

// patch applies a merge patch to the node, provided that it has not changed since n: a list
// in the patch replaces the whole list. It updates n's resourceVersion for the next patch.
// gone reports that the node no longer exists.
func (b *base) patch(ctx context.Context, n *corev1.Node, meta, rest change, subresource ...string) (gone bool, err error) {
	if meta == nil {
		meta = change{}
	}
	meta["resourceVersion"] = n.ResourceVersion
	rest["metadata"] = meta
	got, err := b.writer.Patch(ctx, loop.KeyOf(n), n, types.MergePatchType, rest, subresource...)
	if got == nil {
		return err == nil, err
	}
	n.ResourceVersion = got.ResourceVersion
	return false, nil
}

func (b *base) setTaints(ctx context.Context, n *corev1.Node, taints []corev1.Taint) error {
	_, err := b.patch(ctx, n, nil, change{"spec": change{"taints": taints}})
	return err
}
