package cli

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Levels of -v.
const (
	logRequests        = 6
	logRequestHeaders  = 7
	logResponseHeaders = 8
)

// requestLog logs the requests to the server as kubectl does: a line for each at level
// 6, the headers of the request at 7, and those of the response at 8.
type requestLog struct {
	next  http.RoundTripper
	out   io.Writer
	level int
}

// RoundTrip implements http.RoundTripper.
func (l requestLog) RoundTrip(req *http.Request) (*http.Response, error) {
	what := fmt.Sprintf("verb=%q url=%q", req.Method, req.URL.Redacted())
	if l.level >= logRequestHeaders {
		l.log("Request", what, headerText(req.Header))
	}
	start := time.Now()
	resp, err := l.next.RoundTrip(req)
	took := fmt.Sprintf("milliseconds=%d", time.Since(start).Milliseconds())
	status, headers := "", http.Header{}
	if err == nil {
		status, headers = resp.Status, resp.Header
	}
	status = fmt.Sprintf("status=%q", status)
	switch {
	case l.level == logRequests:
		l.log("Response", what, status, took)
	case l.level >= logResponseHeaders:
		l.log("Response", status, headerText(headers), took)
	default:
		l.log("Response", status, took)
	}
	return resp, err
}

// log writes an entry in the format of klog.
func (l requestLog) log(message string, fields ...string) {
	fmt.Fprintf(l.out, "%s %7d podium] %q %s\n", time.Now().Format("I0102 15:04:05.000000"), os.Getpid(), message, strings.Join(fields, " "))
}

// headerText returns headers, a line for each value, without credentials.
func headerText(h http.Header) string {
	var b strings.Builder
	b.WriteString("headers=<\n")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(&b, "\t%s: %s\n", name, masked(name, value))
		}
	}
	b.WriteString(" >")
	return b.String()
}

// masked returns the value of a header, of a credential only its scheme.
func masked(name, value string) string {
	if !slices.Contains([]string{"Authorization", "Cookie", "Proxy-Authorization", "Set-Cookie"}, name) {
		return value
	}
	if scheme, _, ok := strings.Cut(value, " "); ok && (scheme == "Bearer" || scheme == "Basic") {
		return scheme + " <masked>"
	}
	return "<masked>"
}
