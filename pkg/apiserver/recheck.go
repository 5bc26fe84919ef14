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

// recheckEvery is how soon a long-running request ends after its credential or
// its permission has gone.
const recheckEvery = 10 * time.Second

// recheckSpread is over how many parts of recheckEvery the first rechecks of
// requests that begin together are spread.
const recheckSpread = 64

// recheck authenticates and authorizes a long-running request again, now and
// then, and ends it when the answer is no longer what it was. A nil recheck does
// nothing.
type recheck struct {
	s       *Server
	req     *request.Request
	request *http.Request // a copy, as it came: authentication changes headers

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// recheck prepares to check a request again, nil if it is not long-running. It
// is called before anything reads the request's headers.
func (s *Server) recheck(r *http.Request, req *request.Request) *recheck {
	if !req.LongRunning() {
		return nil
	}
	again := r.Clone(r.Context())
	again.Body = http.NoBody
	return &recheck{s: s, req: req, request: again}
}

// begin returns the request with a context that ends when a recheck fails. The
// request has been authorized: req.User is set. stop ends the rechecks.
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

func (c *recheck) after(wait time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.timer = time.AfterFunc(wait, f)
	}
}

// run checks once, and ends the request or arranges for the next check.
func (c *recheck) run(ctx context.Context, end func()) {
	if err := c.safely(ctx); err != nil && ctx.Err() == nil {
		c.s.cfg.Log.Info("long-running request ended: its user may not go on", "user", c.req.User.Name, "verb", c.req.Verb, "path", c.req.Path, "reason", err)
		c.req.Annotate("podium.dev/ended", err.Error())
		end()
		return
	}
	c.after(recheckEvery, func() { c.run(ctx, end) })
}

// safely is check, with a panic as an error: unlike the check before, it does
// not run in the goroutine of the request.
func (c *recheck) safely(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.check(ctx)
}

var errOtherUser = errors.New("the credential is now another user's")

// check returns why the request may not go on. While that cannot be found out,
// since the server does not know the roles or a service is not reached, the
// request goes on.
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
		return errors.New("the user is no longer known")
	default:
		return fmt.Errorf("authenticate: %w", err)
	}
	if user, err = s.impersonated(r, user); err != nil {
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
