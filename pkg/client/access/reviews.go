package access

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/client"
)

// User is the identity that a request authenticated as.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Reviews creates TokenReviews and SubjectAccessReviews.
type Reviews struct{ Client *client.Client }

// Token returns the user of a bearer token, or nil if the token is not valid for the
// API server's audience.
func (r Reviews) Token(ctx context.Context, token string) (*User, error) {
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review := &authenticationv1.TokenReview{}
	if err := r.Client.Post(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", ask, review); err != nil {
		return nil, fmt.Errorf("review a token: %w", err)
	}
	if !review.Status.Authenticated {
		return nil, nil
	}
	u := review.Status.User
	return &User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: Extra[[]string](u.Extra)}, nil
}

// Allowed reports whether the user may perform the action of spec.
func (r Reviews) Allowed(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := r.Client.Post(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: spec}, review); err != nil {
		return false, fmt.Errorf("review the access of %q: %w", spec.User, err)
	}
	return review.Status.Allowed, nil
}

// as returns a SubjectAccessReview spec for the user; the caller adds the action.
func (u *User) as() authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups, Extra: Extra[authorizationv1.ExtraValue](u.Extra),
	}
}
