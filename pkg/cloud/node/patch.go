package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// writer writes what a controller has decided, about the very node it has
// seen: one that was made anew meanwhile is another machine's, perhaps.
type writer struct {
	kit   kit.Kit
	nodes client.Resource[*corev1.Node]
	loop  *loop.Loop
}

type change map[string]any

// patch writes a change of the node as it was seen; what a list becomes is
// right only for what it was. gone: there is nothing to change any more.
func (w *writer) patch(ctx context.Context, n *corev1.Node, meta, rest change, subresources ...string) (gone bool, err error) {
	body := change{"metadata": change{"uid": n.UID, "resourceVersion": n.ResourceVersion}}
	for k, v := range meta {
		body["metadata"].(change)[k] = v
	}
	for k, v := range rest {
		body[k] = v
	}
	text, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	got, err := w.nodes.Patch(ctx, n.Name, types.MergePatchType, text, subresources...)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("write node: %w", err)
	}
	n.ResourceVersion = got.ResourceVersion
	w.loop.Wrote(loop.KeyOf(n), w.kit.Views.Nodes, got.ResourceVersion)
	return false, nil
}

func (w *writer) setTaints(ctx context.Context, n *corev1.Node, taints []corev1.Taint) error {
	_, err := w.patch(ctx, n, nil, change{"spec": change{"taints": taints}})
	return err
}
