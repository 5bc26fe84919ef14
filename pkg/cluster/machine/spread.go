package machine

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// spreadNames deletes a cluster DNS pod if all of them run on one other
// machine: the first control plane had to take all of them. The replacement is
// scheduled to another node.
func (m *machine) spreadNames(ctx context.Context) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	defer cl.CloseIdle()
	pods := client.For[*corev1.Pod](cl).In(systemNamespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		return err
	}
	p := superfluous(list.Items, m.Node)
	if p == nil {
		return nil
	}
	uid := p.UID
	err = pods.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // another client has deleted it
	}
	return err
}

// superfluous returns one of several pods that all run on one machine other
// than here. It returns nil if they do not, or if one of them is pending or
// being deleted.
func superfluous(pods []*corev1.Pod, here string) *corev1.Pod {
	if len(pods) < 2 {
		return nil
	}
	node := pods[0].Spec.NodeName
	apart := func(p *corev1.Pod) bool {
		return p.Spec.NodeName != node || p.Spec.NodeName == "" || p.DeletionTimestamp != nil
	}
	if node == here || slices.ContainsFunc(pods, apart) {
		return nil
	}
	return pods[len(pods)-1]
}
