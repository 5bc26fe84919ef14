package rootca

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

const (
	name       = "kube-root-ca.crt"
	dataKey    = "ca.crt"
	annotation = "kubernetes.io/description"
	text       = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// Spec describes the publisher of ca, in PEM. The controller is disabled if ca is empty.
func Spec(workers int, ca []byte) controller.Spec {
	s := controller.Spec{Name: "root-ca-certificate-publisher-controller", Account: "root-ca-cert-publisher", Workers: workers}
	if len(ca) > 0 {
		s.New = func(c controller.Context) (controller.Runner, error) { return build(c, string(ca)), nil }
	}
	return s
}

// reconciler's keys are namespaces.
type reconciler struct {
	*loop.Loop
	ca         string
	namespaces *informer.Informer[*corev1.Namespace]
	configMaps *informer.Informer[*corev1.ConfigMap]
	writer     controller.Writer[*corev1.ConfigMap]
}

func build(c controller.Context, ca string) *reconciler {
	r := &reconciler{
		ca: ca, namespaces: informers.For[*corev1.Namespace](c.Informers),
		configMaps: informers.Select[*corev1.ConfigMap](c.Informers, informers.Selection{FieldSelector: "metadata.name=" + name}),
	}
	r.Loop = c.NewLoop("root_ca_cert_publisher", 0, r.reconcile, r.namespaces, r.configMaps)
	r.writer = controller.NewWriter(c, r.Loop, r.configMaps)
	loop.WakeOn(r.Loop, r.namespaces, loop.Self)
	loop.WakeOn(r.Loop, r.configMaps, func(m *corev1.ConfigMap) []loop.Key { return []loop.Key{{Name: m.Namespace}} })
	return r
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := r.namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return loop.Done, nil
	}
	have, exists := r.configMaps.Get(ns.Name, name)
	if !exists {
		return loop.Done, r.create(ctx, key)
	}
	if len(have.Data) == 1 && have.Data[dataKey] == r.ca && len(have.BinaryData) == 0 && have.Annotations[annotation] != "" {
		return loop.Done, nil
	}
	next := have.DeepCopy()
	next.Data, next.BinaryData = map[string]string{dataKey: r.ca}, nil
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, annotation, text)
	_, err := r.writer.Update(ctx, key, next)
	return loop.Done, err
}

func (r *reconciler) create(ctx context.Context, key loop.Key) error {
	_, err := r.writer.Create(ctx, key, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: name, Annotations: map[string]string{annotation: text}},
		Data:       map[string]string{dataKey: r.ca},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) && !controller.NamespaceTerminating(err) {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}
