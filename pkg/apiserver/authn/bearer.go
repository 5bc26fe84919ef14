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

// Presented is a token as received, and the audiences of which it must be valid
// for at least one.
type Presented struct {
	Token     string
	Audiences []string
}

// Identity is the user of a token, and those of the presented audiences that
// the token is valid for.
type Identity struct {
	User      *request.User
	Audiences []string
}

// Objects reads the objects that a token is bound to. Errors are
// *apierrors.StatusError.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
}

// TokenAuthenticator authenticates users by tokens. It returns nil and no error
// if the token is not of its kind, and an error if the token is invalid or
// cannot be checked. Errors must not contain the token. objects may be nil:
// then bound objects are not checked, and tokens that are stored in objects are
// not recognized. Implementations must be safe for concurrent use.
type TokenAuthenticator interface {
	AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error)
}

// TokenFunc is a function that implements TokenAuthenticator.
type TokenFunc func(ctx context.Context, objects Objects, p Presented) (*Identity, error)

// AuthenticateToken calls f.
func (f TokenFunc) AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	return f(ctx, objects, p)
}

// FirstToken returns an authenticator that tries all in order until one returns
// an identity. If none does, its error aggregates all errors.
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

// ErrToken is the error for a token that no authenticator accepts.
var ErrToken = errors.New("invalid bearer token")

// Bearer authenticates users by the bearer tokens of requests, which must be
// valid for one of the audiences.
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

// bearer returns the token of a request, from the header Authorization or a
// WebSocket subprotocol, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return protocolToken(r)
	}
	return strings.TrimSpace(token)
}

// ForServer wraps an authenticator of tokens without audiences: they are valid
// for this server, that is, for any of names.
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
