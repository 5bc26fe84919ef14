package apiserver

import (
	"net/http"

	"podium/pkg/apiserver/request"
)

// Recheck exposes the periodic check of a user's long-running request.
func Recheck(s *Server, r *http.Request, user string) func() error {
	req := request.New(request.Parse(r), http.Header{})
	req.User = &request.User{Name: user}
	r.Header.Set("X-User", user)
	c := s.recheck(r, req)
	return func() error { return c.check(r.Context()) }
}

// Width exposes the estimated seats of a request.
func (s *Server) Width(r *http.Request) int {
	return s.width(r, request.New(request.Parse(r), http.Header{}))
}

// HealthAt exposes the probe of a component.
var HealthAt = healthAt
