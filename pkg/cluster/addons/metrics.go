package addons

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/deploy/manifests"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Metrics configures metrics-server.
type Metrics struct {
	KubeletCA []byte // PEM certificates of the CAs of kubelets' serving certificates
}

// ApplyMetrics creates or updates metrics-server. It takes over the fields in its
// manifest and keeps all others. It does not wait for the pod.
func ApplyMetrics(ctx context.Context, c *client.Client, m Metrics) error {
	objects, err := m.objects(c.Scheme())
	if err != nil {
		return err
	}
	return apply(ctx, c, objects)
}

// objects returns the objects of the manifest, and before them the ConfigMap that
// the pod mounts.
func (m Metrics) objects(s *scheme.Scheme) ([]runtime.Object, error) {
	objects, err := decode(s, manifests.MetricsServer)
	if err != nil {
		return nil, fmt.Errorf("read the manifest of metrics-server: %w", err)
	}
	ca := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubelet-serving-ca", Labels: map[string]string{"k8s-app": "metrics-server"}},
		Data:       map[string]string{"ca.crt": string(m.KubeletCA)},
	}
	return append([]runtime.Object{ca}, objects...), nil
}
