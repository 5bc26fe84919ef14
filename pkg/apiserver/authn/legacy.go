package authn

import (
	"context"
	"crypto/subtle"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
)

// Tokens in Secrets of type kubernetes.io/service-account-token. They do not
// expire: they are valid as long as the Secret contains them.
//
// https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets

const (
	legacyIssuer = "kubernetes/serviceaccount"

	// invalidSince is the label of a Secret whose token was invalidated because
	// it had not been used for long.
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

type legacyClaims struct {
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
	Secret     string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Account    string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// kept verifies a token from a Secret: signature, audiences, Secret and
// ServiceAccount.
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
	audiences := common(p.Audiences, t.cfg.Audiences) // such a token has no audiences: it is valid for this server
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

// checkSecret returns an error unless the Secret contains exactly this token.
// It checks nothing if objects is nil.
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

// common returns the strings of a that are in b.
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
