package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/cluster/machine/upgrade"
)

// markControlPlane waits until the node is registered and labels it as a
// control plane. It also adds the control-plane taint unless m.ControlPlane is
// Shared.
func (m *machine) markControlPlane(ctx context.Context, waiting func(string)) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	nodes := client.For[*corev1.Node](cl)
	return m.wait(ctx, waiting, func(ctx context.Context) error {
		node, err := nodes.Get(ctx, m.Node)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the kubelet has not registered yet")
		}
		if err != nil {
			return err
		}
		patch, err := controlPlaneMark(node, m.ControlPlane)
		if err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, m.Node, types.MergePatchType, patch)
		return err
	}, "kube-apiserver", "kubelet")
}

const controlPlaneLabel = upgrade.ControlPlaneLabel

// controlPlaneMark returns the merge patch that marks a node. It does not add
// the taint again to a node that was marked before: an operator removed it on
// purpose. A merge patch replaces the whole list of taints, which controllers
// write too; the patch therefore carries the resource version of node.
func controlPlaneMark(node *corev1.Node, where Placement) ([]byte, error) {
	meta := map[string]any{"labels": map[string]string{controlPlaneLabel: ""}}
	patch := map[string]any{"metadata": meta}
	taint := corev1.Taint{Key: controlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
	if _, marked := node.Labels[controlPlaneLabel]; where == Dedicated && !marked && !tainted {
		meta["resourceVersion"] = node.ResourceVersion
		patch["spec"] = map[string]any{"taints": append(slices.Clone(node.Spec.Taints), taint)}
	}
	return json.Marshal(patch)
}
