package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/client/streams"
)

// Serving returns the handler of a request that another server serves, nil if this
// server does: /apis/GROUP/VERSION and all below.
func (a *Aggregator) Serving(info *request.Info) http.Handler {
	if r := a.serving(info); r != nil {
		return r
	}
	return nil
}

// Streams reports whether a request switches protocols and goes to another server.
func (a *Aggregator) Streams(r *http.Request, info *request.Info) bool {
	return a.serving(info) != nil && streams.IsUpgrade(r)
}

func (a *Aggregator) serving(info *request.Info) *remote {
	remotes := *a.remotes.Load()
	if len(remotes) == 0 {
		return nil
	}
	if info.IsResource {
		return remotes[schema.GroupVersion{Group: info.Group, Version: info.Version}]
	}
	switch parts := strings.Split(strings.Trim(info.Path, "/"), "/"); {
	case len(parts) == 2 && parts[0] == "api":
		return remotes[schema.GroupVersion{Version: parts[1]}]
	case len(parts) == 3 && parts[0] == "apis":
		return remotes[schema.GroupVersion{Group: parts[1], Version: parts[2]}]
	}
	return nil
}

// ServeHTTP proxies a request that has been authorized. Errors of the proxy have
// upstream's texts, and its form: plain text.
func (r *remote) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	if !r.available.Load() {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	if r.server.err != nil {
		http.Error(w, r.server.err.Error(), http.StatusInternalServerError)
		return
	}
	host, err := r.a.resolve(in.Context(), r.spec.Service)
	if err != nil {
		r.a.Log.Debug("resolve an APIService's Service failed", "apiservice", r.name, "err", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	if err := r.proxy(w, in, host); err != nil {
		wire.WriteError(w, in, err)
	}
}

// proxy passes the request on. If it returns an error, nothing has been written.
func (r *remote) proxy(w http.ResponseWriter, in *http.Request, host string) error {
	req := request.From(in.Context())
	for part := range strings.SplitSeq(in.URL.Path, "/") {
		if part == "." || part == ".." { // another server may resolve them to a path that was not authorized
			return apierrors.NewGenericServerResponse(http.StatusNotFound, req.Verb, schema.GroupResource{}, "", "", 0, false)
		}
	}
	if req.LongRunning() {
		ctx, cancel := context.WithCancel(in.Context())
		defer cancel()
		defer context.AfterFunc(r.a.Closing, cancel)()
		in = in.WithContext(ctx)
	} else {
		select {
		case r.places <- struct{}{}:
			req.Hold(func() { <-r.places })
		default:
			return apierrors.NewTooManyRequests("too many requests wait for "+r.name, 1)
		}
	}
	if req.Upgrade {
		r.upgrade(w, in, host)
		return nil
	}
	p := httputil.ReverseProxy{
		Transport:      r.server.requests,
		Rewrite:        func(p *httputil.ProxyRequest) { rewrite(p, host, req) },
		ModifyResponse: inspect,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { r.failed(w, in, err) },
	}
	p.ServeHTTP(final{w}, in)
	return nil
}

// rewrite turns a client's request into the one to the other server: the path that was
// authorized, and the user.
func rewrite(p *httputil.ProxyRequest, host string, req *request.Request) {
	p.Out.URL = &url.URL{Scheme: "https", Host: host, Path: p.In.URL.Path, RawQuery: p.Out.URL.RawQuery}
	p.Out.Host = p.In.Host
	p.Out.Trailer = nil
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
	identify(p.Out.Header, req.User)
	p.Out.Header.Set("Audit-Id", req.AuditID)
}

// upgrade passes on a request that switches protocols, and then the connection.
func (r *remote) upgrade(w http.ResponseWriter, in *http.Request, host string) {
	req := request.From(in.Context())
	out := in.WithContext(in.Context())
	out.Header = in.Header.Clone()
	identify(out.Header, req.User)
	out.Header["Connection"] = []string{"Upgrade"} // names no other header, which a proxy on the way would remove
	out.Header.Set("Audit-Id", req.AuditID)
	u := &url.URL{Scheme: "https", Host: host, Path: in.URL.Path, RawQuery: in.URL.RawQuery}
	if err := (streams.Target{URL: u, Transport: r.server.streams}).Upgrade(w, out); err != nil {
		r.failed(w, in, err)
	}
}

// errRedirect has upstream's text.
var errRedirect = errors.New("the backend attempted to redirect this request, which is not permitted")

// inspect refuses answers that would send the client elsewhere or take the connection
// over, and removes headers that this server sets itself.
func inspect(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		return errors.New("the backend switched protocols without being asked to")
	case code >= 300 && code <= 399 && resp.Header.Get("Location") != "":
		return errRedirect
	}
	resp.Header.Del("Audit-Id")
	resp.Header.Del("Cache-Control")
	return nil
}

// failed answers for a server that did not.
func (r *remote) failed(w http.ResponseWriter, in *http.Request, err error) {
	r.a.Log.Debug("proxy to an APIService failed", "apiservice", r.name, "err", err)
	switch ctxErr := in.Context().Err(); {
	case ctxErr != nil:
		wire.WriteError(w, in, ctxErr)
	case errors.Is(err, errRedirect):
		http.Error(w, err.Error(), http.StatusBadGateway)
	default:
		http.Error(w, "error trying to reach service: "+err.Error(), http.StatusServiceUnavailable)
	}
}

// final passes on only final answers: the server's records take the first status for
// the answer's.
type final struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (f final) WriteHeader(code int) {
	if code >= http.StatusOK {
		f.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

const (
	identityPrefix = "X-Remote-"
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

// identify replaces the client's credentials, and whatever it says of users, by the
// headers for user.
func identify(h http.Header, user *request.User) {
	for name, values := range h {
		// Some servers read - and _ in the names of headers as the same.
		plain := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		switch {
		case plain == "Authorization", strings.HasPrefix(plain, identityPrefix), strings.HasPrefix(plain, "Impersonate-"):
			delete(h, name)
		case plain == "Sec-Websocket-Protocol":
			h[name] = withoutTokens(values)
		}
	}
	h.Set(identityPrefix+"User", user.Name)
	if user.UID != "" {
		h.Set(identityPrefix+"Uid", user.UID)
	}
	for _, group := range user.Groups {
		h.Add(identityPrefix+"Group", group)
	}
	for key, values := range user.Extra {
		for _, v := range values {
			h.Add(identityPrefix+"Extra-"+escape(key), v)
		}
	}
}

// withoutTokens returns WebSocket subprotocols without those that carry a bearer token.
func withoutTokens(lines []string) []string {
	var left []string
	for _, line := range lines {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); !strings.HasPrefix(p, bearerProtocol) {
				left = append(left, p)
			}
		}
	}
	return []string{strings.Join(left, ", ")}
}

// escape encodes the key of an extra for the name of a header: bytes that a header's
// name cannot have, and %, as %XX. authn.ExtraKey is the inverse.
func escape(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if letter || slices.Contains([]byte("!#$&'*+-.^_`|~"), c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
