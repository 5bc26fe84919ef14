package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"podium/pkg/backoff"
)

// Request is one request to the API. Path is relative to the server's base URL and
// already escaped.
type Request struct {
	Method string // empty: GET
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
}

// maxRetries is how many Retry-After answers one request follows.
const maxRetries = 10

// Do sends a request and reads the whole response. A status of 300 or more is returned
// as *apierrors.StatusError. Do retries when the server asks for it (429 and 503 with
// Retry-After) and switches to the next server when a connection cannot be made. It
// retries nothing else: only the caller can know whether that is safe.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, http.Header, error) {
	resp, err := c.Stream(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := readAll(resp)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: read the answer: %w", r.method(), r.Path, err)
	}
	return body, resp.Header, nil
}

// Stream is Do for responses that are read incrementally (logs, watches): the caller
// closes the body. Cancelling ctx ends it.
func (c *Client) Stream(ctx context.Context, r Request) (*http.Response, error) {
	return c.send(ctx, r, c.network.transport)
}

// send performs one request, with fail-over, renewal after 401, and Retry-After.
func (c *Client) send(ctx context.Context, r Request, transport func() http.RoundTripper) (*http.Response, error) {
	renewed := false
	for retries := 0; ; retries++ {
		t := transport()
		resp, err := c.tryServers(ctx, r, t)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 300 {
			return resp, nil
		}
		if resp.StatusCode == http.StatusUnauthorized && !renewed && (c.rejected() || c.network.renew(t)) {
			renewed = true
			drain(resp.Body)
			continue
		}
		wait, ok := retryAfter(resp)
		if !ok || retries >= maxRetries {
			defer resp.Body.Close()
			return nil, c.statusError(resp, r)
		}
		drain(resp.Body)
		if err := backoff.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// rejected reports a refused token to the token's source, false if there is none.
func (c *Client) rejected() bool {
	if c.cfg.Rejected == nil {
		return false
	}
	c.cfg.Rejected()
	return true
}

// tryServers sends the request to the server that answered last, and to the others in
// turn as long as no connection can be made. Nothing is sent before a connection is
// made, so this is safe for every method.
func (c *Client) tryServers(ctx context.Context, r Request, t http.RoundTripper) (*http.Response, error) {
	servers := c.servers.Load()
	start := int(servers.current.Load())
	var errs []error
	for i := range servers.urls {
		n := (start + i) % len(servers.urls)
		req, err := c.request(ctx, r, servers.urls[n])
		if err != nil {
			return nil, err
		}
		resp, err := c.over(t).RoundTrip(req)
		if err == nil {
			servers.turn(start, n)
			return resp, nil
		}
		if ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				servers.turn(start, n+1) // a timeout is a failure of the server, too
			}
			return nil, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", r.method(), req.URL.Redacted(), err))
		if !neverConnected(err) {
			// Start with the next server from now on: this one may have partly failed.
			servers.turn(start, n+1)
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (c *Client) request(ctx context.Context, r Request, server *url.URL) (*http.Request, error) {
	u := *server
	path := u.EscapedPath() + r.Path
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, fmt.Errorf("path %q: %w", path, err)
	}
	u.RawPath = path
	u.RawQuery = r.Query.Encode()
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method(), u.String(), body)
	if err != nil {
		return nil, err
	}
	for k, v := range c.cfg.Header {
		req.Header[k] = v
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	if c.cfg.UserAgent != "" && req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.cfg.UserAgent)
	}
	if c.cfg.Token != nil {
		token, err := c.cfg.Token()
		if err != nil {
			return nil, fmt.Errorf("bearer token: %w", err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	return req, nil
}

func (r Request) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// neverConnected reports whether an error occurred before a byte of the request was
// sent: in the dial or in the TLS verification of the server.
func neverConnected(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid)
}

// retryAfter returns the delay that a 429 or 503 response asks for.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(resp.Header.Get("Retry-After")))
	if err != nil || seconds < 0 {
		return 0, false
	}
	return time.Duration(seconds) * time.Second, true
}

// drain reads the rest of a short body, so that its connection can be reused.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10) // an error only costs the connection
	body.Close()
}

func readAll(resp *http.Response) ([]byte, error) {
	if resp.ContentLength <= 0 {
		return io.ReadAll(resp.Body)
	}
	// A wrong length must not allocate memory before the bytes arrive.
	buf := bytes.NewBuffer(make([]byte, 0, min(resp.ContentLength+bytes.MinRead, 64<<20)))
	_, err := buf.ReadFrom(resp.Body)
	return buf.Bytes(), err
}
