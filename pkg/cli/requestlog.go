package cli

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Levels of -v.
const (
	logRequests        = 6
	logRequestHeaders  = 7
	logResponseHeaders = 8
	logBodies          = 8
	logLongBodies      = 9
	logWholeBodies     = 10
)

// requestLog logs the requests to the server as kubectl does: a line for each at level
// 6, the headers of the request at 7, those of the response at 8. Bodies follow at 8, their
// first 1,024 bytes, at 9, their first 10,240, and at 10, all of them. Headers are logged
// without credentials, bodies as they are: a Secret that is read is in the log.
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
	if err := l.logRequestBody(req); err != nil {
		return nil, err
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
	if err == nil && l.level >= logBodies && !streams(req, resp) {
		resp.Body = &loggedBody{ReadCloser: resp.Body, log: l}
	}
	return resp, err
}

// logRequestBody logs the body of a request that can be read twice.
func (l requestLog) logRequestBody(req *http.Request) error {
	if l.level < logBodies || req.GetBody == nil {
		return nil
	}
	r, err := req.GetBody()
	if err != nil {
		return err
	}
	defer r.Close()
	body := loggedBody{ReadCloser: r, log: l}
	if _, err := io.Copy(io.Discard, &body); err != nil {
		return err
	}
	l.logBody("Request Body", &body)
	return nil
}

// streams reports whether the answer has no end of its own: a watch, a log that is followed,
// a connection that is upgraded.
func streams(req *http.Request, resp *http.Response) bool {
	query := req.URL.Query()
	return resp.StatusCode == http.StatusSwitchingProtocols || query.Has("watch") || query.Has("follow")
}

// loggedBody keeps what is read of a body, as much as is logged, and logs it when it is first
// closed.
type loggedBody struct {
	io.ReadCloser
	log    requestLog
	kept   bytes.Buffer
	size   int
	closed bool
}

// Read implements io.Reader.
func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += n
	b.kept.Write(p[:min(n, b.log.bodyLimit()-b.kept.Len())])
	return n, err
}

// Close implements io.Closer.
func (b *loggedBody) Close() error {
	if !b.closed {
		b.closed = true
		b.log.logBody("Response Body", b)
	}
	return b.ReadCloser.Close()
}

// bodyLimit returns how many bytes of a body are logged.
func (l requestLog) bodyLimit() int {
	switch {
	case l.level >= logWholeBodies:
		return math.MaxInt
	case l.level >= logLongBodies:
		return 10240
	}
	return 1024
}

// logBody logs the kept part of a body, a binary one in hexadecimal digits.
func (l requestLog) logBody(message string, b *loggedBody) {
	text := b.kept.String()
	if strings.ContainsFunc(text, func(r rune) bool { return r < '\t' }) {
		text = hex.Dump(b.kept.Bytes())
	}
	if more := b.size - b.kept.Len(); more > 0 {
		text += fmt.Sprintf(" [truncated %d chars]", more)
	}
	l.log(message, "body="+blockText(text))
}

// blockText quotes a line, and sets several ones as an indented block.
func blockText(text string) string {
	if !strings.Contains(text, "\n") {
		return strconv.Quote(text)
	}
	return "<\n\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n\t") + "\n >"
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
