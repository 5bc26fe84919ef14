package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/request"
	"podium/pkg/client/bootstraptoken"
)

var errBootstrap = errors.New("invalid bootstrap token")

// BootstrapTokens authenticates joining machines by bootstrap tokens. now may
// be nil.
func BootstrapTokens(now func() time.Time) TokenAuthenticator {
	if now == nil {
		now = time.Now
	}
	return TokenFunc(func(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
		token, ok := bootstraptoken.Parse(p.Token)
		if !ok || objects == nil {
			return nil, nil
		}
		obj, err := objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), bootstraptoken.Namespace, token.SecretName())
		if apierrors.IsNotFound(err) {
			return nil, errBootstrap
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return identify(obj.(*corev1.Secret), token, now())
	})
}

// identify checks a token against the Secret of its ID. The error does not tell
// the client what is wrong, so that it cannot be used for guessing.
func identify(secret *corev1.Secret, token bootstraptoken.Token, now time.Time) (*Identity, error) {
	spec, err := bootstraptoken.FromSecret(secret)
	switch {
	case subtle.ConstantTimeCompare([]byte(spec.Secret), []byte(token.Secret)) != 1:
		return nil, errBootstrap
	case err != nil || secret.DeletionTimestamp != nil || spec.Expired(now) || !spec.For(bootstraptoken.Authentication):
		return nil, errBootstrap
	}
	return &Identity{User: &request.User{
		Name:   bootstraptoken.UserPrefix + spec.ID,
		Groups: append(append([]string{bootstraptoken.Group}, spec.Groups...), Authenticated),
	}}, nil
}
