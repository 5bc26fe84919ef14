package poll

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// NodeReady is nil if the node is Ready, else it says why it is not.
func NodeReady(n *corev1.Node) error {
	for _, cond := range n.Status.Conditions {
		if cond.Type != corev1.NodeReady {
			continue
		}
		if cond.Status == corev1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("%s: %s", cond.Reason, cond.Message)
	}
	return errors.New("the kubelet has not reported yet")
}
