package machine

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// spreadNames moves a name server off the machine that has them all: the
// first control plane had to take every one, and would take them with it.
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
		return nil // somebody else has moved it
	}
	return err
}

// superfluous is one of several pods that are all on one machine, not this
// one; nil if they are not, or if one of them is moving already.
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
