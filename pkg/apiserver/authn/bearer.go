package authn

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Presented is a token as a client shows it, and the audiences it must be for
// one of.
type Presented struct {
	Token     string
	Audiences []string
}

// Identity is whose a token is, and which of the wanted audiences it is for.
type Identity struct {
	User      *request.User
	Audiences []string
}

// Objects finds what a token is bound to. Errors are *apierrors.StatusError.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
}

// TokenAuthenticator knows users by tokens. Neither an identity nor an error
// means that the token is not of its kind. No error may repeat the token.
type TokenAuthenticator interface {
	AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error)
}

// TokenFunc is a TokenAuthenticator.
type TokenFunc func(ctx context.Context, objects Objects, p Presented) (*Identity, error)

// AuthenticateToken calls f.
func (f TokenFunc) AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	return f(ctx, objects, p)
}

// FirstToken asks each until one knows the token. The error of one that knows
// none is all that was objected.
func FirstToken(all ...TokenAuthenticator) TokenAuthenticator {
	return TokenFunc(func(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
		var objected []error
		for _, a := range all {
			who, err := a.AuthenticateToken(ctx, objects, p)
			if who != nil {
				return who, nil
			}
			if err != nil {
				objected = append(objected, err)
			}
		}
		return nil, utilerrors.NewAggregate(objected)
	})
}

// ErrToken is what is said of a token that nobody knows.
var ErrToken = errors.New("invalid bearer token")

// Bearer knows users by the tokens in their requests, which must be for one of
// the audiences.
func Bearer(tokens TokenAuthenticator, objects Objects, audiences []string) Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		token := bearer(r)
		if token == "" {
			return nil, nil
		}
		who, err := tokens.AuthenticateToken(r.Context(), objects, Presented{Token: token, Audiences: audiences})
		switch {
		case who != nil:
			return who.User, nil
		case err == nil:
			return nil, ErrToken
		}
		return nil, err
	})
}

// bearer is the token of a request.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return protocolToken(r)
	}
	return strings.TrimSpace(token)
}

// ForServer are tokens that say no audience of their own: they are for the
// server alone, by whichever of its names it is asked.
func ForServer(names []string, tokens TokenAuthenticator) TokenAuthenticator {
	return TokenFunc(func(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
		audiences := common(p.Audiences, names)
		if len(audiences) == 0 {
			return nil, nil
		}
		who, err := tokens.AuthenticateToken(ctx, objects, p)
		if who == nil || err != nil {
			return nil, err
		}
		return &Identity{User: who.User, Audiences: audiences}, nil
	})
}
