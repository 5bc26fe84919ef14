package authn

import (
	"net/http"

	"podium/pkg/apiserver/request"
)

// Names that Kubernetes gives to groups and users.
const (
	Authenticated   = "system:authenticated"
	Unauthenticated = "system:unauthenticated"
	AnonymousUser   = "system:anonymous"
	Masters         = "system:masters"
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

// FirstOf asks each until one knows the user. Its error is that of the last
// one that objected, when none knows.
func FirstOf(all ...Authenticator) Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		var last error
		for _, a := range all {
			user, err := a.Authenticate(r)
			if user != nil {
				return user, nil
			}
			if err != nil {
				last = err
			}
		}
		return nil, last
	})
}

// Certificates knows users by their client certificates: the common name is
// the user, the organizations are the groups. The connection has verified the
// certificate already (tls.VerifyClientCertIfGiven).
func Certificates() Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			return nil, nil
		}
		subject := r.TLS.VerifiedChains[0][0].Subject
		if subject.CommonName == "" {
			return nil, nil
		}
		groups := make([]string, 0, len(subject.Organization)+1)
		groups = append(append(groups, subject.Organization...), Authenticated)
		return &request.User{Name: subject.CommonName, Groups: groups}, nil
	})
}

// Anonymous is everybody who shows nothing at all.
func Anonymous() Authenticator {
	return Func(func(r *http.Request) (*request.User, error) {
		if r.Header.Get("Authorization") != "" {
			return nil, nil
		}
		return &request.User{Name: AnonymousUser, Groups: []string{Unauthenticated}}, nil
	})
}
