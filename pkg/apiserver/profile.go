package apiserver

import (
	"net/http"
	"net/http/pprof"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
)

// serveProfile serves /debug/pprof, to members of system:masters only, since a
// profile can reveal more than permissions on the API allow. It returns false,
// without writing, if there is no such page.
func serveProfile(w http.ResponseWriter, r *http.Request, req *request.Request) bool {
	const root = "/debug/pprof"
	if !req.User.In(authn.Masters) {
		wire.WriteError(w, r, authz.Forbidden(req.User, &req.Info, "profiles are for "+authn.Masters))
		return true
	}
	switch path := r.URL.Path; {
	case path == root:
		http.Redirect(w, r, root+"/", http.StatusMovedPermanently)
	case path == root+"/cmdline":
		pprof.Cmdline(w, r)
	case path == root+"/profile":
		pprof.Profile(w, r)
	case path == root+"/symbol":
		pprof.Symbol(w, r)
	case path == root+"/trace":
		pprof.Trace(w, r)
	case len(path) > len(root) && path[:len(root)+1] == root+"/":
		pprof.Index(w, r)
	default:
		return false
	}
	return true
}
