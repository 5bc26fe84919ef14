package tokencleaner

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/informer"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Controller is the token cleaner. Its keys are secrets.
type Controller struct {
	secrets client.Resource[*corev1.Secret]
	tokens  *informer.Informer[*corev1.Secret]
	loop    *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg kit.Kit) *Controller {
	c := &Controller{secrets: client.For[*corev1.Secret](cfg.Client).In(bootstraptoken.Namespace)}
	c.tokens = informer.New(c.secrets, informer.Options{FieldSelector: "type=" + string(bootstraptoken.SecretType), Log: cfg.Log})
	c.loop = cfg.Loop("token_cleaner", 0, c.reconcile, c.tokens)
	loop.WakeOn(c.loop, c.tokens, loop.Self)
	return c
}

// Run cleans until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.tokens.Run(ctx) })
	g.Go(func() error { return c.loop.Run(ctx) })
	return g.Wait()
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	secret, ok := c.tokens.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	left, ends := bootstraptoken.Left(secret, time.Now())
	switch {
	case !ends:
		return loop.Done, nil
	case left > 0:
		return loop.After(left), nil
	}
	uid, revision := secret.UID, secret.ResourceVersion
	err := c.secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &revision}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return loop.Done, fmt.Errorf("delete expired bootstrap token %s: %w", secret.Name, err)
	}
	return loop.Done, nil
}
