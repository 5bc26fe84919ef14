package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// The user impersonation headers.
// https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

// impersonated returns the user that the request acts as: user itself, or the
// one that the impersonation headers name if user may impersonate it for what
// info describes. constraint is the verb that allows this, "" if it is not
// constrained. It removes these headers from r.
func (s *Server) impersonated(r *http.Request, user *request.User, info *request.Info) (as *request.User, constraint string, err error) {
	as, err = wanted(r.Header)
	if as == nil || err != nil {
		return user, "", err
	}
	m, err := s.actAs(r.Context(), user, as, info)
	if err != nil {
		return nil, "", err
	}
	if m.name != "" && nodeOf(as.Name) != "" {
		as.Groups = []string{request.Nodes}
	}
	completeGroups(as)
	// Remove the headers so that a backend behind a proxy does not apply them
	// again.
	for key := range r.Header {
		if strings.HasPrefix(key, "Impersonate-") {
			delete(r.Header, key)
		}
	}
	return as, m.constraint(), nil
}

// wanted returns the user that the headers name, nil if there are none. It
// returns a BadRequest error for groups, a UID or extras without a user name.
func wanted(h http.Header) (*request.User, error) {
	as := &request.User{Name: h.Get(impersonateUser), UID: h.Get(impersonateUID), Groups: slices.Clone(h.Values(impersonateGroup))}
	for key, values := range h {
		if name, ok := strings.CutPrefix(key, impersonateExtra); ok {
			if as.Extra == nil {
				as.Extra = map[string][]string{}
			}
			key := authn.ExtraKey(name)
			as.Extra[key] = append(as.Extra[key], values...)
		}
	}
	if as.Name != "" {
		return as, nil
	}
	if as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0 {
		return nil, apierrors.NewBadRequest("requested to impersonate groups, a UID or extras without impersonating a user")
	}
	return nil, nil
}

// serviceAccount splits the user name of a service account.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != ""
}

// completeGroups adds the groups that authentication would have given the user.
func completeGroups(as *request.User) {
	if namespace, _, ok := serviceAccount(as.Name); ok && len(as.Groups) == 0 {
		as.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	}
	group := authn.Authenticated
	if as.Name == authn.AnonymousUser {
		group = authn.Unauthenticated
	}
	if !as.In(authn.Authenticated) && !as.In(authn.Unauthenticated) {
		as.Groups = append(as.Groups, group)
	}
}
