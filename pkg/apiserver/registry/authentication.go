package registry

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/access"
	"podium/pkg/scheme"
)

// selfSubjectReviews returns the kind that reports the authenticated user of the
// request.
func selfSubjectReviews(k *scheme.Kind, cfg Config) *Kind {
	return Of[*authenticationv1.SelfSubjectReview]{
		Review: func(_ context.Context, _ Backend, user *request.User, _ *authenticationv1.SelfSubjectReview) (*authenticationv1.SelfSubjectReview, error) {
			if user == nil {
				return nil, apierrors.NewBadRequest("no user present on request")
			}
			return &authenticationv1.SelfSubjectReview{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(cfg.Now())},
				Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(user)},
			}, nil
		},
	}.Kind(k)
}

// tokenReviews returns the kind that authenticates a token. The response for an
// invalid token has the reason.
func tokenReviews(k *scheme.Kind, cfg Config) *Kind {
	return Of[*authenticationv1.TokenReview]{
		Review: func(ctx context.Context, b Backend, _ *request.User, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			return reviewToken(ctx, b, cfg, review)
		},
	}.Kind(k)
}

func reviewToken(ctx context.Context, b Backend, cfg Config, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	review.Status = authenticationv1.TokenReviewStatus{}
	if cfg.Identify == nil {
		return review, nil
	}
	audiences := review.Spec.Audiences
	if len(audiences) == 0 {
		audiences = cfg.TokenAudiences
	}
	who, err := cfg.Identify.AuthenticateToken(ctx, b, authn.Presented{Token: review.Spec.Token, Audiences: audiences})
	switch {
	case who != nil:
		review.Status.Authenticated = true
		review.Status.User = userInfo(who.User)
		review.Status.Audiences = who.Audiences
	case err != nil:
		review.Status.Error = err.Error()
	default:
		review.Status.Error = authn.ErrToken.Error()
	}
	return review, nil
}

func userInfo(u *request.User) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: access.Extra[authenticationv1.ExtraValue](u.Extra),
	}
}
