package authn

import (
	"errors"
	"net/http"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podium/pkg/apiserver/request"
)

// Names that Kubernetes gives to groups and users.
const (
	Authenticated   = request.Authenticated
	Unauthenticated = request.Unauthenticated
	AnonymousUser   = request.AnonymousUser
	Masters         = request.Masters
)

// Authenticator finds out who a request comes from. No user and no error means
// that the request has nothing to show which this authenticator understands;
// an error, that what it shows is bad.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}

// Func is an Authenticator.
type Func func(r *http.Request) (*request.User, error)

// Authenticate calls f.
func (f Func) Authenticate(r *http.Request) (*request.User, error) { return f(r) }

// FirstOf asks each until one knows the user. Its error, when none knows, is
// all that was objected.
func FirstOf(all ...Authenticator) Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		var objected []error
		for _, a := range all {
			user, err := a.Authenticate(r)
			if user != nil {
				return user, nil
			}
			if err != nil {
				objected = append(objected, err)
			}
		}
		return nil, utilerrors.NewAggregate(objected)
	})
}

// ErrUnavailable is in the chain of an error that says nothing about the
// credential: what decides on it could not be asked.
var ErrUnavailable = errors.New("the credential could not be checked")

// Undecided says whether an authenticator's error leaves open whether the
// credential is good: nothing was objected but ErrUnavailable.
func Undecided(err error) bool {
	var all utilerrors.Aggregate
	if errors.As(err, &all) {
		for _, one := range all.Errors() {
			if !Undecided(one) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, ErrUnavailable)
}

// Anonymous is everybody who shows nothing at all, where that is enough: to ask
// whether the server is healthy and which version it is, and to read how a new
// machine finds the cluster. Elsewhere such a request is nobody's.
func Anonymous() Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		if r.Header.Get("Authorization") != "" || !open(r.URL.Path) {
			return nil, nil
		}
		return &request.User{Name: AnonymousUser, Groups: []string{Unauthenticated}}, nil
	})
}

// ClusterInfoPath is where a machine that is about to join reads the cluster's
// address and CA. That it may is for the authorizer to say.
const ClusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

func open(path string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "healthz", "livez", "readyz":
		return true
	case "version":
		return rest == ""
	}
	return path == ClusterInfoPath
}
