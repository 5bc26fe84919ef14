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

// User is the authenticated user of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// In reports whether the user is in a group.
func (u *User) In(group string) bool { return slices.Contains(u.Groups, group) }

// Request is the server's record of one request. The chain fills in the
// exported fields before the handlers run. Warn, Annotate, Annotations, Refer
// and Reference are safe for concurrent use; Hold and Release are not.
type Request struct {
	Info
	User    *User // nil until authenticated
	AuditID string
	Flow    string       // the flow, in terms of flow control, that limits apply to
	Memory  *budget.Pool // for decoding and encoding; nil: no limit
	Turns   *budget.Pool // for a watch's initial events; nil: no limit
	Heavy   *budget.Pool // for decoding large bodies and encoding large lists, taken before Memory; nil: no limit

	// Constraint is the verb that allowed the client to act as User, and limits this to
	// some requests. "": the client is User, or may do all that User may.
	Constraint string

	// Spend counts bytes written to the store for a flow. It returns a 429
	// error if the flow has exceeded its limit. nil: no limit.
	Spend func(flow string, bytes int) error

	held func() // releases the resources that the request holds; nil: none

	mu          sync.Mutex
	header      http.Header
	warnings    []string
	annotations map[string]string
	reference   Reference
}

// Reference is the identity of the object in a request's body.
type Reference struct {
	Name, UID, ResourceVersion string
}

// New returns the record of a request whose response headers are header. It is
// called before the response begins.
func New(info Info, header http.Header) *Request {
	return &Request{Info: info, header: header}
}

// Hold registers release to be called by Release, after the functions
// registered before. It must be called in the goroutine that serves the
// request.
func (r *Request) Hold(release func()) {
	before := r.held
	r.held = func() {
		if before != nil {
			before()
		}
		release()
	}
}

// Release calls the functions registered with Hold, each once. The server calls
// it when the response begins or the request ends, in the goroutine that serves
// the request.
func (r *Request) Release() {
	if release := r.held; release != nil {
		r.held = nil
		release()
	}
}

// maxWarnings limits the total bytes of warnings in a response, since clients
// limit the size of headers.
const maxWarnings = 4 << 10

// Warn adds a Warning header to the response. It drops repeated texts. It
// truncates the text at which the size limit is reached and drops further ones.
// It has no effect after the response has begun.
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

// Annotate sets an annotation of the request's audit event.
func (r *Request) Annotate(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.annotations == nil {
		r.annotations = map[string]string{}
	}
	r.annotations[key] = value
}

// Annotations returns a copy of the audit annotations.
func (r *Request) Annotations() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.annotations)
}

// Refer records, for the audit log, the object that the body names.
func (r *Request) Refer(to Reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reference = to
}

// Reference returns the object that the body names, as set by Refer.
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

// From returns the record in a context, nil if there is none.
func From(ctx context.Context) *Request {
	r, _ := ctx.Value(contextKey{}).(*Request)
	return r
}

// Spend counts bytes that the request of ctx writes to the store. It returns a
// 429 error if the user has exceeded the limit. Work of the server itself,
// without a request, is not limited.
func Spend(ctx context.Context, bytes int) error {
	if r := From(ctx); r != nil && r.Spend != nil {
		return r.Spend(r.Flow, bytes)
	}
	return nil
}

// UserFrom returns the user of the request of ctx, nil for work of the server
// itself.
func UserFrom(ctx context.Context) *User {
	if r := From(ctx); r != nil {
		return r.User
	}
	return nil
}

// Warn adds a warning to the response of the request of ctx, if there is one.
func Warn(ctx context.Context, text string) {
	if r := From(ctx); r != nil {
		r.Warn(text)
	}
}

// Annotate sets an audit annotation of the request of ctx, if there is one.
func Annotate(ctx context.Context, key, value string) {
	if r := From(ctx); r != nil {
		r.Annotate(key, value)
	}
}
