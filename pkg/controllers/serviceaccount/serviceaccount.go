package serviceaccount

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

const name = "default"

// Spec describes the service account controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{Name: "serviceaccount-controller", Account: "service-account-controller", Component: "serviceaccount-controller", Workers: workers, New: build}
}

// reconciler's keys are namespaces.
type reconciler struct {
	*loop.Loop
	namespaces *informer.Informer[*corev1.Namespace]
	accounts   *informer.Informer[*corev1.ServiceAccount]
	writer     controller.Writer[*corev1.ServiceAccount]
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		namespaces: informers.For[*corev1.Namespace](c.Informers), accounts: informers.For[*corev1.ServiceAccount](c.Informers),
	}
	r.Loop = c.NewLoop("serviceaccount", 0, r.reconcile, r.namespaces, r.accounts)
	r.writer = controller.NewWriter(c, r.Loop, r.accounts)
	loop.WakeOn(r.Loop, r.namespaces, loop.Self)
	loop.WakeOn(r.Loop, r.accounts, func(sa *corev1.ServiceAccount) []loop.Key {
		if sa.Name != name {
			return nil
		}
		return []loop.Key{{Name: sa.Namespace}}
	})
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := r.namespaces.Get("", key.Name)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return loop.Done, nil
	}
	if _, ok := r.accounts.Get(ns.Name, name); ok {
		return loop.Done, nil
	}
	_, err := r.writer.Create(ctx, key, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) && !controller.NamespaceTerminating(err) {
		return loop.Done, fmt.Errorf("create service account: %w", err)
	}
	return loop.Done, nil
}
