package rootca

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/views"
)

const (
	dataKey    = "ca.crt"
	annotation = "kubernetes.io/description"
	text       = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// Config is what the controller needs.
type Config struct {
	kit.Kit
	CA []byte // PEM
}

// Controller is the root CA publisher. Its keys are namespaces.
type Controller struct {
	cfg  Config
	maps client.Resource[*corev1.ConfigMap]
	loop *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, maps: client.For[*corev1.ConfigMap](cfg.Client)}
	c.loop = cfg.Loop("root_ca_cert_publisher", 0, c.reconcile, cfg.Views.Namespaces, cfg.Views.RootCAs)
	loop.WakeOn(c.loop, cfg.Views.Namespaces, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.RootCAs, func(m *corev1.ConfigMap) []loop.Key { return []loop.Key{{Name: m.Namespace}} })
	return c
}

// Run publishes until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := c.cfg.Views.Namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return loop.Done, nil
	}
	have, exists := c.cfg.Views.RootCAs.Get(ns.Name, views.RootCAName)
	if !exists {
		return loop.Done, c.create(ctx, ns.Name)
	}
	if len(have.Data) == 1 && have.Data[dataKey] == string(c.cfg.CA) && len(have.BinaryData) == 0 && have.Annotations[annotation] != "" {
		return loop.Done, nil
	}
	next := have.DeepCopy()
	next.Data, next.BinaryData = map[string]string{dataKey: string(c.cfg.CA)}, nil
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotation, text)
	got, err := c.maps.Update(ctx, next)
	if apierrors.IsNotFound(err) {
		return loop.Done, nil
	}
	if err != nil {
		return loop.Done, fmt.Errorf("restore %s: %w", next.Name, err)
	}
	c.loop.Wrote(key, c.cfg.Views.RootCAs, got.ResourceVersion)
	return loop.Done, nil
}

func (c *Controller) create(ctx context.Context, namespace string) error {
	_, err := c.maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: views.RootCAName, Annotations: map[string]string{annotation: text}},
		Data:       map[string]string{dataKey: string(c.cfg.CA)},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("create %s: %w", views.RootCAName, err)
	}
	return nil
}
