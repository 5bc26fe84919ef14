package access

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/client"
)

// User is who asks.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Reviews asks the API.
type Reviews struct{ Client *client.Client }

// Token is whose token it is, nil if it is nobody's. It must be one for the API
// itself: that is whom tokens are shown to here.
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

// Allowed says whether a user may do something.
func (r Reviews) Allowed(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := r.Client.Post(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: spec}, review); err != nil {
		return false, fmt.Errorf("review the access of %q: %w", spec.User, err)
	}
	return review.Status.Allowed, nil
}

// as is the question of a user, to be completed with what they want.
func (u *User) as() authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups, Extra: Extra[authorizationv1.ExtraValue](u.Extra),
	}
}
