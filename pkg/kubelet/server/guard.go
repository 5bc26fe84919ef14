package server

import (
	"context"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/client/access"
)

// need lists subresources of nodes; a client needs access to one of them.
type need []string

// guard authenticates and authorizes requests to h, and writes the response for the
// error of h.
func (s *server) guard(n need, h func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.Access.Authenticate(r)
		if err != nil {
			s.Log.Debug("authentication failed", "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if !s.allowed(w, r, user, n) {
			return
		}
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// allowed checks access to each subresource in turn. If none is allowed, it writes
// the response and returns false.
func (s *server) allowed(w http.ResponseWriter, r *http.Request, user *access.User, n need) bool {
	verb := verbOf(r)
	for _, subresource := range n {
		ok, err := s.Access.MayResource(r.Context(), user, authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: s.NodeName,
		})
		if err != nil {
			s.Log.Warn("authorization failed", "user", user.Name, "path", r.URL.Path, "error", err)
			http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Name, verb, subresource), http.StatusInternalServerError)
			return false
		}
		if ok {
			return true
		}
	}
	http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Name, verb, []string(n)), http.StatusForbidden)
	return false
}

// denyAll rejects all requests.
type denyAll struct{}

func (denyAll) Authenticate(*http.Request) (*access.User, error) { return nil, access.ErrUnknown }

func (denyAll) MayResource(context.Context, *access.User, authorizationv1.ResourceAttributes) (bool, error) {
	return false, nil
}
