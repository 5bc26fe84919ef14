package request

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/net"

	"podium/pkg/apiserver/budget"
)

// User is who a request comes from.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// In says whether the user belongs to a group.
func (u *User) In(group string) bool { return slices.Contains(u.Groups, group) }

// Request is the server's record of one request. The chain fills it in before
// the endpoints run; only warnings and annotations are added later.
type Request struct {
	Info
	User    *User // nil until authenticated
	AuditID string
	Flow    string       // whose share of the server the request counts for
	Memory  *budget.Pool // what decoding and encoding takes; nil: no limit
	Turns   *budget.Pool // for sending a watch's initial events; nil: at once

	// Spend counts bytes that are written to the store for a flow; nil: no limit.
	Spend func(flow string, bytes int) error

	held func() // releases what the work on the request has taken

	mu          sync.Mutex
	header      http.Header
	warnings    []string
	annotations map[string]string
	reference   Reference
}

// Reference is what a request's body says of the object it is about.
type Reference struct {
	Name, UID, ResourceVersion string
}

// New makes the record of a request whose response headers are header.
func New(info Info, header http.Header) *Request {
	return &Request{Info: info, header: header}
}

// Hold has release called when the answer begins or the request ends, after
// what is held already. Hold and Release are called by the goroutine that
// serves the request.
func (r *Request) Hold(release func()) {
	before := r.held
	r.held = func() {
		if before != nil {
			before()
		}
		release()
	}
}

// Release releases all that is held.
func (r *Request) Release() {
	if release := r.held; release != nil {
		r.held = nil
		release()
	}
}

// maxWarnings is how many bytes all warnings of a response may have: clients
// bound the headers they take.
const maxWarnings = 4 << 10

// Warn adds a Warning header to the response. The same text is sent once. It
// has no effect after the response has begun, and none beyond what a client
// takes; the text that reaches that bound is cut short.
func (r *Request) Warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.warnings, text) {
		return
	}
	left := maxWarnings
	for _, w := range r.warnings {
		left -= len(w)
	}
	if left <= 0 {
		return
	}
	if len(text) > left {
		text = strings.ToValidUTF8(text[:left], "") + "..."
	}
	r.warnings = append(r.warnings, text)
	if h, err := net.NewWarningHeader(299, "-", text); err == nil {
		r.header.Add("Warning", h)
	}
}

// Annotate notes for the audit log what was decided about the request.
func (r *Request) Annotate(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.annotations == nil {
		r.annotations = map[string]string{}
	}
	r.annotations[key] = value
}

// Annotations are the notes so far.
func (r *Request) Annotations() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.annotations)
}

// Refer notes, for the audit log, which object the body names.
func (r *Request) Refer(to Reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reference = to
}

// Reference is the object that the body names, as far as it is known.
func (r *Request) Reference() Reference {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reference
}

type contextKey struct{}

// With returns a context that carries the record.
func With(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// From finds the record in a context; nil if it has none.
func From(ctx context.Context) *Request {
	r, _ := ctx.Value(contextKey{}).(*Request)
	return r
}

// Spend counts bytes that a request writes to the store. The error is a 429. The
// server's own work is not counted.
func Spend(ctx context.Context, bytes int) error {
	if r := From(ctx); r != nil && r.Spend != nil {
		return r.Spend(r.Flow, bytes)
	}
	return nil
}

// UserFrom is the user of a request, nil where a request has none: the
// server's own work.
func UserFrom(ctx context.Context) *User {
	if r := From(ctx); r != nil {
		return r.User
	}
	return nil
}

// Warn adds a warning to the response of the request ctx belongs to, if any.
func Warn(ctx context.Context, text string) {
	if r := From(ctx); r != nil {
		r.Warn(text)
	}
}

// Annotate notes something of the request ctx belongs to, if any, for the
// audit log.
func Annotate(ctx context.Context, key, value string) {
	if r := From(ctx); r != nil {
		r.Annotate(key, value)
	}
}
