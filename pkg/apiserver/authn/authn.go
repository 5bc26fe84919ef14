package authn

import (
	"errors"
	"net/http"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podium/pkg/apiserver/request"
)

// The names of groups and users that Kubernetes defines.
const (
	Authenticated   = request.Authenticated
	Unauthenticated = request.Unauthenticated
	AnonymousUser   = request.AnonymousUser
	Masters         = request.Masters
)

// Authenticator authenticates requests. It returns nil and no error if the
// request has no credential that it supports, and an error if the credential is
// invalid or cannot be checked. Implementations must be safe for concurrent
// use.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}

// Func is a function that implements Authenticator.
type Func func(r *http.Request) (*request.User, error)

// Authenticate calls f.
func (f Func) Authenticate(r *http.Request) (*request.User, error) { return f(r) }

// FirstOf returns an authenticator that tries all in order until one returns a
// user. If none does, its error aggregates all errors.
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

// ErrUnavailable is wrapped by errors that do not mean that the credential is
// invalid: it could not be checked.
var ErrUnavailable = errors.New("the credential could not be checked")

// Undecided reports whether an authenticator's error consists only of
// ErrUnavailable, so that the credential may be valid.
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

// Anonymous authenticates requests without an Authorization header as
// system:anonymous, on a few paths: health, version and the ConfigMap
// cluster-info. Other requests without credentials stay unauthenticated.
func Anonymous() Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		if r.Header.Get("Authorization") != "" || !open(r.URL.Path) {
			return nil, nil
		}
		return &request.User{Name: AnonymousUser, Groups: []string{Unauthenticated}}, nil
	})
}

// ClusterInfoPath is the ConfigMap with the cluster's address and CA for
// machines that are about to join. Reading it needs authorization as well.
const ClusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// open reports whether anonymous requests are accepted on a path.
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
