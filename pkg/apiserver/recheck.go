package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// recheckEvery is the longest time for which a long-running request outlives
// its credential or its permission.
const recheckEvery = 10 * time.Second

// recheckSpread is the number of slots over which the first rechecks of
// requests that start together are spread.
const recheckSpread = 64

// recheck authenticates and authorizes a long-running request periodically, and
// ends it when either fails or the user changes. A nil recheck does nothing.
type recheck struct {
	s       *Server
	req     *request.Request
	request *http.Request // a copy as received: authentication changes headers

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// recheck returns a recheck for r, or nil if req is not long-running. Call it
// before anything changes the request's headers.
func (s *Server) recheck(r *http.Request, req *request.Request) *recheck {
	if !req.LongRunning() {
		return nil
	}
	again := r.Clone(r.Context())
	again.Body = http.NoBody
	return &recheck{s: s, req: req, request: again}
}

// begin starts the checks and returns the request with a context that is
// canceled when one fails. The request must be authorized: req.User is set.
// stop ends the checks and must be called.
func (c *recheck) begin(r *http.Request) (checked *http.Request, stop func()) {
	if c == nil {
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(r.Context())
	first := recheckEvery/2 + time.Duration(c.s.rechecks.Add(1)%recheckSpread)*recheckEvery/2/recheckSpread
	c.after(first, func() { c.run(ctx, cancel) })
	return r.WithContext(ctx), func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
		c.timer.Stop()
	}
}

// after schedules f, unless the request has ended.
func (c *recheck) after(wait time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.timer = time.AfterFunc(wait, f)
	}
}

// run checks once, then ends the request or schedules the next check.
func (c *recheck) run(ctx context.Context, end func()) {
	if err := c.safely(ctx); err != nil && ctx.Err() == nil {
		c.s.cfg.Log.Info("long-running request ended: the user is no longer authorized", "user", c.req.User.Name, "verb", c.req.Verb, "path", c.req.Path, "reason", err)
		c.req.Annotate("podium.dev/ended", err.Error())
		end()
		return
	}
	c.after(recheckEvery, func() { c.run(ctx, end) })
}

// safely is check with a panic returned as an error: check runs in a timer's
// goroutine here, where a panic would end the process.
func (c *recheck) safely(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.check(ctx)
}

var errOtherUser = errors.New("the credential is now another user's")

// check returns the reason for which the request must end, or nil. It also
// returns nil if the answer cannot be determined, because roles are not synced
// or a webhook is unreachable.
func (c *recheck) check(ctx context.Context) error {
	s := c.s
	if !s.rolesDone.Load() || s.cfg.Access.ready() != nil {
		return nil
	}
	r := c.request.Clone(ctx)
	user, err := s.known.Authenticate(r)
	switch {
	case user != nil:
	case authn.Undecided(err):
		return nil
	case err == nil:
		return errors.New("the user no longer exists")
	default:
		return fmt.Errorf("authenticate: %w", err)
	}
	if user, _, err = s.impersonated(r, user, &c.req.Info); err != nil {
		return err
	}
	if user.Name != c.req.User.Name || user.UID != c.req.User.UID {
		return errOtherUser
	}
	if asked, decision, reason := s.authorize(ctx, user, &c.req.Info); decision != authz.Allow {
		return authz.Forbidden(user, asked, reason)
	}
	return nil
}
