package apiserver

import (
	"net/http"

	"podium/pkg/apiserver/request"
)

// Recheck is what a server does again and again for a long-running request of a
// user.
func Recheck(s *Server, r *http.Request, user string) func() error {
	req := request.New(request.Parse(r), http.Header{})
	req.User = &request.User{Name: user}
	r.Header.Set("X-User", user)
	c := s.recheck(r, req)
	return func() error { return c.check(r.Context()) }
}
