package authn

import (
	"context"
	"crypto/subtle"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
)

// Tokens kept in secrets of type kubernetes.io/service-account-token. They have
// no end of their own: they live as long as their secret holds them.
// https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets

const (
	legacyIssuer = "kubernetes/serviceaccount"

	// invalidSince marks a secret whose token has not been used for so long
	// that it must not be any more.
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

type legacyClaims struct {
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
	Secret     string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Account    string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

func (t *Tokens) kept(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	token, err := verify(&t.legacy, t.cfg.Keys(), p.Token)
	if err != nil {
		return nil, err
	}
	public, own := token.public, token.own
	switch {
	case own.Namespace == "" || own.Secret == "" || own.Account == "" || own.AccountUID == "":
		return nil, ErrToken
	case public.Subject != subject(own.Namespace, own.Account):
		return nil, errTokenSubject
	}
	audiences := common(p.Audiences, t.cfg.Audiences) // such a token names none: it is for this server
	if len(audiences) == 0 {
		return nil, ErrToken
	}
	if err := t.checkSecret(ctx, objects, own, p.Token); err != nil {
		return nil, err
	}
	account := Ref{Name: own.Account, UID: own.AccountUID}
	if err := t.checkBound(ctx, objects, bound{Namespace: own.Namespace, ServiceAccount: account}); err != nil {
		return nil, err
	}
	return &Identity{User: accountUser(own.Namespace, account), Audiences: audiences}, nil
}

// checkSecret: the secret must hold this very token.
func (t *Tokens) checkSecret(ctx context.Context, objects Objects, own legacyClaims, token string) error {
	if objects == nil {
		return nil
	}
	holds := func(obj scheme.Object) bool {
		secret, ok := obj.(*corev1.Secret)
		return ok && secret.DeletionTimestamp == nil && secret.Labels[invalidSince] == "" &&
			subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 1
	}
	ok, err := find(ctx, objects, "secrets", own.Namespace, own.Secret, holds)
	if err == nil && !ok {
		err = errTokenInvalidated
	}
	return err
}

// common are the strings of a that are in b.
func common(a, b []string) []string {
	var out []string
	for _, s := range a {
		for _, other := range b {
			if s == other {
				out = append(out, s)
				break
			}
		}
	}
	return out
}
