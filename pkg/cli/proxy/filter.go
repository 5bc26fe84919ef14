package proxy

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
)

// The default expressions of Filter, separated by commas. They refuse commands in
// containers, and web sites that are another host for the browser.
const (
	DefaultAcceptHosts   = `^localhost$,^127\.0\.0\.1$,^\[::1\]$`
	DefaultAcceptPaths   = `^.*`
	DefaultRejectPaths   = `^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach`
	DefaultRejectMethods = `^$`
)

// Filter decides which requests are passed on: those whose host and path are
// accepted, and whose path and method are not rejected.
type Filter struct {
	AcceptHosts, AcceptPaths, RejectPaths, RejectMethods Expressions
}

// Expressions are regular expressions, of which one must match.
type Expressions []*regexp.Regexp

// ParseExpressions parses expressions that commas separate. None match nothing.
func ParseExpressions(list string) (Expressions, error) {
	if list == "" {
		return nil, nil
	}
	var out Expressions
	for _, text := range strings.Split(list, ",") {
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		out = append(out, re)
	}
	return out, nil
}

func (e Expressions) match(s string) bool {
	for _, re := range e {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// Accepts reports whether a request is passed on. host may have a port.
func (f *Filter) Accepts(method, host, path string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	return !f.RejectPaths.match(path) && !f.RejectMethods.match(method) && f.AcceptPaths.match(path) && f.AcceptHosts.match(host)
}

// around answers 403 to requests that the filter does not accept.
func (f *Filter) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.Accepts(r.Method, r.Host, r.URL.Path) {
			http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
