package serviceaccounttoken

import (
	"bytes"
	"context"
	"crypto"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/client/jwtkey"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Options configure the controller.
type Options struct {
	Workers int
	Key     func() crypto.Signer // returns the current signing key; nil disables the controller
	CA      []byte               // PEM; if empty, the secrets contain no CA
}

// Spec describes the service account token controller.
func Spec(o Options) controller.Spec {
	s := controller.Spec{Name: "serviceaccount-token-controller", Account: "tokens-controller", Component: "serviceaccount-token-controller", Workers: o.Workers}
	if o.Key != nil {
		s.New = o.build
	}
	return s
}

// reconciler's keys are secrets.
type reconciler struct {
	Options
	*loop.Loop
	client   client.Resource[*corev1.ServiceAccount]
	accounts *informer.Informer[*corev1.ServiceAccount]
	secrets  *informer.Informer[*corev1.Secret]
	writer   controller.Writer[*corev1.Secret]
}

func (o Options) build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		Options: o, client: client.For[*corev1.ServiceAccount](c.Client), accounts: informers.For[*corev1.ServiceAccount](c.Informers),
		secrets: informers.Select[*corev1.Secret](c.Own, informers.Selection{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}),
	}
	ofAccount := informers.Index(r.secrets, "account", func(s *corev1.Secret) []string {
		return []string{s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]}
	})
	r.Loop = c.NewLoop("serviceaccount_tokens", 0, r.reconcile, r.secrets, r.accounts)
	r.writer = controller.NewWriter(c, r.Loop, r.secrets)
	loop.WakeOn(r.Loop, r.secrets, loop.Self)
	loop.WakeOn(r.Loop, r.accounts, func(sa *corev1.ServiceAccount) (keys []loop.Key) {
		for _, s := range ofAccount(sa.Namespace + "/" + sa.Name) {
			keys = append(keys, loop.KeyOf(s))
		}
		return keys
	})
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	secret, ok := r.secrets.Get(key.Namespace, key.Name)
	if !ok || secret.DeletionTimestamp != nil {
		return loop.Done, nil
	}
	account, err := r.account(ctx, secret)
	if err != nil {
		return loop.Done, err
	}
	if account == nil {
		_, err := r.writer.Delete(ctx, key, secret, controller.Unchanged(secret))
		return loop.Done, err
	}
	next, err := r.filled(secret, account)
	if next != nil && err == nil {
		_, err = r.writer.Update(ctx, key, next)
	}
	return loop.Done, err
}

// account returns the service account of a secret, nil if it does not exist. It asks the API
// before it returns nil, because the informer may not show the account yet.
func (r *reconciler) account(ctx context.Context, secret *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], secret.Annotations[corev1.ServiceAccountUIDKey]
	matches := func(sa *corev1.ServiceAccount) bool { return uid == "" || string(sa.UID) == uid }
	if sa, ok := r.accounts.Get(secret.Namespace, name); ok && matches(sa) {
		return sa, nil
	}
	sa, err := r.client.In(secret.Namespace).Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !matches(sa):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get service account %s: %w", name, err)
	}
	return sa, nil
}

// filled returns the completed secret, nil if secret is already complete.
func (r *reconciler) filled(secret *corev1.Secret, account *corev1.ServiceAccount) (*corev1.Secret, error) {
	needsToken := len(secret.Data[corev1.ServiceAccountTokenKey]) == 0
	needsCA := len(r.CA) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], r.CA)
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
		next.Data[corev1.ServiceAccountRootCAKey] = r.CA
	}
	if needsNamespace {
		next.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if needsToken {
		token, err := sign(r.Key(), secret, account)
		if err != nil {
			return nil, err
		}
		next.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	return next, nil
}

// sign returns the token of a secret. The API server accepts the token while the secret
// contains it.
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
