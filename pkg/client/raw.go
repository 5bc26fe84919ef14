package client

import (
	"net/http"
	"net/url"
	"strings"
)

// RoundTripper returns a transport for the requests of another client. It replaces
// their server by the one that answered last, and adds the credentials. Method, path,
// query, body and other headers stay, and every answer is returned as it is: nothing
// is decoded or retried. Requests with an Upgrade header switch protocols. Headers
// with credentials that a request already has are kept.
func (c *Client) RoundTripper() http.RoundTripper { return raw{c} }

type raw struct{ *Client }

// RoundTrip implements http.RoundTripper.
func (r raw) RoundTrip(in *http.Request) (*http.Response, error) {
	servers := r.servers.Load()
	at := int(servers.current.Load())
	server := servers.urls[at%len(servers.urls)]
	req := in.Clone(in.Context())
	if err := r.aim(req, server); err != nil {
		return nil, err
	}
	t := r.network.transport()
	if req.Header.Get("Upgrade") != "" {
		t = r.upgrades
	}
	resp, err := r.over(t).RoundTrip(req)
	if err != nil && in.Context().Err() == nil {
		servers.turn(at, at+1)
	}
	return resp, err
}

// aim sets the server and the credentials of a request.
func (r raw) aim(req *http.Request, server *url.URL) error {
	auth, err := r.request(req.Context(), Request{}, server)
	if err != nil {
		return err
	}
	path := strings.TrimSuffix(server.EscapedPath(), "/") + req.URL.EscapedPath()
	if req.URL.Path, err = url.PathUnescape(path); err != nil {
		return err
	}
	req.URL.RawPath = path
	req.URL.Scheme, req.URL.Host, req.Host = server.Scheme, server.Host, server.Host
	for k, v := range auth.Header {
		if _, given := req.Header[k]; !given {
			req.Header[k] = v
		}
	}
	return nil
}
