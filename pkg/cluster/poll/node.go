package poll

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/conditions"
)

// NodeReady returns nil if the node is Ready, otherwise the reason why it is
// not.
func NodeReady(n *corev1.Node) error {
	switch c := conditions.Find(n.Status.Conditions, corev1.NodeReady); {
	case c == nil:
		return errors.New("the kubelet has not reported yet")
	case c.Status != corev1.ConditionTrue:
		return fmt.Errorf("%s: %s", c.Reason, c.Message)
	}
	return nil
}

// Node returns a check for Until: it reads a node and calls ready, such as NodeReady,
// with it.
func Node(cl *client.Client, name string, ready func(*corev1.Node) error) func(context.Context) error {
	nodes := client.For[*corev1.Node](cl)
	return func(ctx context.Context) error {
		n, err := nodes.Get(ctx, name)
		if err != nil {
			return err
		}
		return ready(n)
	}
}
