package serviceaccounttoken

import (
	"bytes"
	"context"
	"crypto"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/client/jwtkey"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
	"podium/pkg/scheme"
)

// Config is what the controller needs.
type Config struct {
	kit.Kit
	Key func() crypto.Signer // the present key that signs
	CA  []byte               // PEM; without it secrets get none
}

const byAccount = "account" // index: namespace/name of the account that a secret names

// Controller is the service account token controller. Its keys are secrets.
type Controller struct {
	cfg     Config
	secrets client.Resource[*corev1.Secret]
	view    *informer.Informer[*corev1.Secret]
	loop    *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, secrets: client.For[*corev1.Secret](cfg.Client)}
	c.view = informer.New(c.secrets, informer.Options{
		FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken), Log: cfg.Log,
		Transform: func(obj scheme.Object) { obj.SetManagedFields(nil) },
	})
	c.view.Index(byAccount, func(s *corev1.Secret) []string {
		return []string{s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]}
	})
	c.loop = cfg.Loop("serviceaccount_tokens", 0, c.reconcile, c.view, cfg.Views.ServiceAccounts)
	loop.WakeOn(c.loop, c.view, loop.Self)
	loop.WakeOn(c.loop, cfg.Views.ServiceAccounts, func(sa *corev1.ServiceAccount) []loop.Key {
		var keys []loop.Key
		for _, s := range c.view.By(byAccount, sa.Namespace+"/"+sa.Name) {
			keys = append(keys, loop.KeyOf(s))
		}
		return keys
	})
	return c
}

// Run fills secrets until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.view.Run(ctx) })
	g.Go(func() error { return c.loop.Run(ctx) })
	return g.Wait()
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	secret, ok := c.view.Get(key.Namespace, key.Name)
	if !ok || secret.DeletionTimestamp != nil {
		return loop.Done, nil
	}
	account, err := c.account(ctx, secret)
	if err != nil {
		return loop.Done, err
	}
	if account == nil {
		return loop.Done, c.remove(ctx, secret)
	}
	next, err := c.filled(secret, account)
	if next == nil || err != nil {
		return loop.Done, err
	}
	got, err := c.secrets.Update(ctx, next)
	if apierrors.IsNotFound(err) {
		return loop.Done, nil
	}
	if err != nil {
		return loop.Done, fmt.Errorf("fill secret %s: %w", next.Name, err)
	}
	c.loop.Wrote(key, c.view, got.ResourceVersion)
	return loop.Done, nil
}

// account is the one that a secret is for, nil if there is none. Before an
// account is taken for gone the API is asked: the view may not show it yet.
func (c *Controller) account(ctx context.Context, secret *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], secret.Annotations[corev1.ServiceAccountUIDKey]
	fits := func(sa *corev1.ServiceAccount) bool { return uid == "" || string(sa.UID) == uid }
	if sa, ok := c.cfg.Views.ServiceAccounts.Get(secret.Namespace, name); ok && fits(sa) {
		return sa, nil
	}
	sa, err := client.For[*corev1.ServiceAccount](c.cfg.Client).In(secret.Namespace).Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !fits(sa):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get service account %s: %w", name, err)
	}
	return sa, nil
}

// remove deletes a secret, if it still is what was seen.
func (c *Controller) remove(ctx context.Context, secret *corev1.Secret) error {
	uid, revision := secret.UID, secret.ResourceVersion
	err := c.secrets.In(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &revision},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete secret %s, whose service account is gone: %w", secret.Name, err)
	}
	return nil
}

// filled is the secret with everything in it, nil if it has everything.
func (c *Controller) filled(secret *corev1.Secret, account *corev1.ServiceAccount) (*corev1.Secret, error) {
	needsToken := len(secret.Data[corev1.ServiceAccountTokenKey]) == 0
	needsCA := len(c.cfg.CA) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], c.cfg.CA)
	needsNamespace := len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0
	needsUID := secret.Annotations[corev1.ServiceAccountUIDKey] == ""
	if !needsToken && !needsCA && !needsNamespace && !needsUID {
		return nil, nil
	}
	next := secret.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	if needsCA {
		next.Data[corev1.ServiceAccountRootCAKey] = c.cfg.CA
	}
	if needsNamespace {
		next.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if needsToken {
		token, err := sign(c.cfg.Key(), secret, account)
		if err != nil {
			return nil, err
		}
		next.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	return next, nil
}

// sign makes the token of a secret. The apiserver accepts it while the secret
// holds it.
func sign(key crypto.Signer, secret *corev1.Secret, account *corev1.ServiceAccount) (string, error) {
	signer, err := jwtkey.Signer(key)
	if err != nil {
		return "", err
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss":                                    "kubernetes/serviceaccount",
		"sub":                                    "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"kubernetes.io/serviceaccount/namespace": account.Namespace,
		"kubernetes.io/serviceaccount/secret.name":          secret.Name,
		"kubernetes.io/serviceaccount/service-account.name": account.Name,
		"kubernetes.io/serviceaccount/service-account.uid":  string(account.UID),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign the token of secret %s: %w", secret.Name, err)
	}
	return token, nil
}
