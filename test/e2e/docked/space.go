package docked

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// Space is a test's namespace on a cluster.
type Space struct {
	*Cluster
	T         *testing.T
	Namespace string
	API       *client.Client
	Pods      client.Resource[*corev1.Pod]
}

// Space creates a namespace with the test's name, which is deleted when the test ends.
func (c *Cluster) Space(t *testing.T) *Space {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	c.Podium(t, "create", "namespace", name)
	t.Cleanup(func() {
		if _, err := c.Try(context.Background(), "", "delete", "namespace", name, "--timeout", "2m"); err != nil {
			t.Error(err)
		}
	})
	api := c.Client(t)
	return &Space{Cluster: c, T: t, Namespace: name, API: api, Pods: client.For[*corev1.Pod](api).In(name)}
}

// Apply applies a manifest.
func (s *Space) Apply(manifest string) {
	s.T.Helper()
	s.Feed(s.T, manifest, "apply", "-n", s.Namespace, "-f", "-")
}

// Ready waits until a pod is ready and returns it.
func (s *Space) Ready(name string) *corev1.Pod {
	s.T.Helper()
	var pod *corev1.Pod
	Eventually(s.T, time.Minute, "pod "+name+" is ready", func(ctx context.Context) (err error) {
		if pod, err = s.Pods.Get(ctx, name); err != nil {
			return err
		}
		if !IsReady(pod) {
			return fmt.Errorf("%s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

// IsReady returns whether a pod's condition Ready is true.
func IsReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Exec runs a command in a pod and returns its output without space at the ends.
func (s *Space) Exec(pod string, command ...string) (string, error) {
	out, err := s.Try(s.T.Context(), "", append([]string{"exec", "-n", s.Namespace, pod, "--"}, command...)...)
	return strings.TrimSpace(out), err
}

// RolledOut waits until a Deployment is rolled out.
func (s *Space) RolledOut(deployment string, patience time.Duration) {
	s.T.Helper()
	s.Podium(s.T, "rollout", "status", "-n", s.Namespace, "deployment/"+deployment, "--timeout", patience.String())
}

// Address returns a node's internal address.
func (s *Space) Address(node string) string {
	s.T.Helper()
	n, err := client.For[*corev1.Node](s.API).Get(s.T.Context(), node)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	s.T.Fatalf("node %s has no address", node)
	return ""
}

// NodePort returns the first node port of a Service.
func (s *Space) NodePort(service string) int {
	s.T.Helper()
	svc, err := client.For[*corev1.Service](s.API).In(s.Namespace).Get(s.T.Context(), service)
	if err != nil {
		s.T.Fatal(err)
	}
	return int(svc.Spec.Ports[0].NodePort)
}
