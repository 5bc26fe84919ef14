package authn

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"time"

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

	// LastUsed is the label of a Secret with the day on which its token was last
	// used, in UTC, in the format of time.DateOnly.
	LastUsed = "kubernetes.io/legacy-token-last-used"
)

// Use is the use of a token in a Secret whose label LastUsed does not say today.
type Use struct{ Namespace, Secret string }

// Uses returns the channel of uses that are to be recorded. Authentication does not
// wait for its reader: what does not fit is dropped, and comes again with the next use.
func (t *Tokens) Uses() <-chan Use { return t.uses }

// Today returns the value of the label LastUsed for now.
func (t *Tokens) Today() string { return t.cfg.Now().UTC().Format(time.DateOnly) }

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
	used, err := t.checkSecret(ctx, objects, own, p.Token)
	if err != nil {
		return nil, err
	}
	account := Ref{Name: own.Account, UID: own.AccountUID}
	if err := t.checkBound(ctx, objects, bound{Namespace: own.Namespace, ServiceAccount: account}); err != nil {
		return nil, err
	}
	if used != "" && used != t.Today() {
		t.record(Use{own.Namespace, own.Secret})
	}
	return &Identity{User: accountUser(own.Namespace, account), Audiences: audiences}, nil
}

// record passes a use to the reader of Uses unless it lags.
func (t *Tokens) record(u Use) {
	select {
	case t.uses <- u:
	default:
	}
}

// never is the day of the last use of a token that was not used yet.
const never = "never"

// checkSecret returns an error unless the Secret contains exactly this token, and
// the day of its last use, never if there is none. It checks nothing if objects is
// nil, and returns "".
func (t *Tokens) checkSecret(ctx context.Context, objects Objects, own legacyClaims, token string) (used string, err error) {
	if objects == nil {
		return "", nil
	}
	invalid := ""
	holds := func(obj scheme.Object) bool {
		secret, ok := obj.(*corev1.Secret)
		if !ok || secret.DeletionTimestamp != nil || subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) != 1 {
			return false
		}
		used, invalid = cmp.Or(secret.Labels[LastUsed], never), secret.Labels[invalidSince]
		return invalid == ""
	}
	ok, err := find(ctx, objects, "secrets", own.Namespace, own.Secret, holds)
	switch {
	case err != nil || ok:
		return used, err
	case invalid != "":
		return "", fmt.Errorf("the token in secret %s/%s of service account %s is invalid since %s, as it was not used for long: use a token of the TokenRequest API, or remove the label %s from the secret",
			own.Namespace, own.Secret, own.Account, invalid, invalidSince)
	}
	return "", errTokenInvalidated
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
