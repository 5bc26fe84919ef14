package legacytokencleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// The ConfigMap in kube-system in which the API server notes since when it records uses.
const tracking = "kube-apiserver-legacy-service-account-token-tracking"

// every is the time between two passes over all Secrets.
const every = 24 * time.Hour

// Spec describes the cleaner. period is how long a token must be unused to become invalid, and
// then how long it must stay so to be deleted.
func Spec(period time.Duration) controller.Spec {
	return controller.Spec{
		Name: "legacy-serviceaccount-token-cleaner-controller", Account: "legacy-service-account-token-cleaner", Workers: 1,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, period), nil },
	}
}

// reconciler has a single key: the cluster.
type reconciler struct {
	controller.Context
	*loop.Loop
	period   time.Duration
	secrets  *informer.Informer[*corev1.Secret]
	accounts *informer.Informer[*corev1.ServiceAccount]
	pods     *informer.Informer[*corev1.Pod]
	writer   controller.Writer[*corev1.Secret]
}

func build(c controller.Context, period time.Duration) *reconciler {
	r := &reconciler{
		Context: c, period: period,
		secrets:  informers.Select[*corev1.Secret](c.Own, informers.Selection{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}),
		accounts: informers.For[*corev1.ServiceAccount](c.Informers), pods: informers.For[*corev1.Pod](c.Informers),
	}
	r.Loop = c.NewLoop("legacy_service_account_token_cleaner", 0, r.reconcile, r.secrets, r.accounts, r.pods)
	r.writer = controller.NewWriter(c, r.Loop, r.secrets)
	r.Wake(loop.Key{Name: "cluster"})
	return r
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	since, err := client.For[*corev1.ConfigMap](r.Client).In(metav1.NamespaceSystem).Get(ctx, tracking)
	if apierrors.IsNotFound(err) {
		return loop.After(every), nil // no API server records uses
	}
	if err != nil {
		return loop.Done, fmt.Errorf("get the day since which uses are recorded: %w", err)
	}
	now := time.Now()
	if !tracked(since.Data["since"], r.period, now) {
		return loop.After(every), nil
	}
	mounted := map[types.NamespacedName]bool{}
	for _, p := range r.pods.List() {
		for _, name := range secretsOf(p) {
			mounted[types.NamespacedName{Namespace: p.Namespace, Name: name}] = true
		}
	}
	var errs []error
	for _, s := range r.secrets.List() {
		account, _ := r.accounts.Get(s.Namespace, s.Annotations[corev1.ServiceAccountNameKey])
		v := view{Secret: s, account: account, mounted: mounted[loop.KeyOf(s)]}
		errs = append(errs, r.do(ctx, key, s, decide(v, r.period, now), now))
	}
	if err := errors.Join(errs...); err != nil {
		return loop.Done, err
	}
	return loop.After(every), nil
}

// do carries out an action, unless the Secret has changed since it was seen.
func (r *reconciler) do(ctx context.Context, key loop.Key, s *corev1.Secret, a action, now time.Time) error {
	switch a {
	case invalidate:
		_, err := r.writer.Patch(ctx, key, s, types.MergePatchType, map[string]any{"metadata": map[string]any{
			"resourceVersion": s.ResourceVersion, "labels": map[string]any{invalidSince: now.UTC().Format(time.DateOnly)},
		}})
		return err
	case remove:
		deleted, err := r.writer.Delete(ctx, key, s, controller.Unchanged(s))
		if deleted {
			r.Log.Info("unused token deleted", "namespace", s.Namespace, "secret", s.Name)
		}
		return err
	}
	return nil
}
