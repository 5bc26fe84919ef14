package tokencleaner

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes the token cleaner.
func Spec() controller.Spec {
	return controller.Spec{Name: "token-cleaner-controller", Account: "token-cleaner", Workers: 1, New: build}
}

type reconciler struct {
	*loop.Loop
	tokens *informer.Informer[*corev1.Secret]
	writer controller.Writer[*corev1.Secret]
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{tokens: informers.Select[*corev1.Secret](c.Own, informers.Selection{
		Namespace: bootstraptoken.Namespace, FieldSelector: "type=" + string(bootstraptoken.SecretType)})}
	r.Loop = c.NewLoop("token_cleaner", 0, r.reconcile, r.tokens)
	r.writer = controller.NewWriter(c, r.Loop, r.tokens)
	loop.WakeOn(r.Loop, r.tokens, loop.Self)
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	secret, ok := r.tokens.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	switch left, expires := bootstraptoken.Left(secret, time.Now()); {
	case !expires:
		return loop.Done, nil
	case left > 0:
		return loop.After(left), nil
	}
	_, err := r.writer.Delete(ctx, key, secret, controller.Unchanged(secret))
	return loop.Done, err
}
