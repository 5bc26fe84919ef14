package audit

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"podium/pkg/apiserver/request"
)

// Event is the record of one stage of a request. It is immutable once queued.
type Event struct {
	Level        Level
	Stage        Stage
	AuditID      string
	RequestURI   string
	User         *request.User // nil: not authenticated
	Impersonated *request.User // nil: no impersonation
	Constraint   string        // the verb that constrains the impersonation; "": none does
	UserAgent    string
	Info         *request.Info
	Object       request.Reference // the object that the body names
	Code         int               // status code of the response; 0: not yet known
	Status       *metav1.Status    // nil: only Code is known
	Received     time.Time
	At           time.Time
	Decision     string // allow or forbid; empty: not yet authorized
	Reason       string // of the authorizer
	Annotations  map[string]string

	from     from
	request  *body // nil: not recorded
	response *body

	omitManagedFields bool
}

// from holds the source addresses of a request, as sent and as seen.
type from struct {
	forwarded, real string // headers
	remote          string
}

// addresses returns the source IPs: those in the headers first, then the
// connection's.
func (f *from) addresses() []string {
	h := http.Header{}
	if f.forwarded != "" {
		h.Set("X-Forwarded-For", f.forwarded)
	}
	if f.real != "" {
		h.Set("X-Real-Ip", f.real)
	}
	var out []string
	for _, ip := range utilnet.SourceIPs(&http.Request{Header: h, RemoteAddr: f.remote}) {
		out = append(out, ip.String())
	}
	return out
}

// size estimates the memory, in bytes, that the event holds.
func (e *Event) size() int64 {
	n := int64(1000 + len(e.RequestURI) + len(e.UserAgent) + len(e.Info.Path))
	for _, b := range []*body{e.request, e.response} {
		if b != nil {
			n += int64(cap(b.data))
		}
	}
	return n
}

// The maximum lengths of texts, in bytes. Those of unauthenticated requests are
// shorter.
const (
	maxText                = 4 << 10
	maxUserAgent           = 1024 // as upstream
	maxAddresses           = 1024 // of a header with addresses
	maxUnauthenticatedText = 256
)

// truncatedSuffix is upstream's mark of a truncated text.
const truncatedSuffix = "...TRUNCATED"

// shorten truncates a text.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most] + truncatedSuffix
}

func requestURI(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// addressHeader returns a header with a list of addresses, cut after the last
// complete address if it is too long.
func addressHeader(r *http.Request, name string) string {
	list := r.Header.Get(name)
	if len(list) <= maxAddresses {
		return list
	}
	list = list[:maxAddresses]
	return strings.Clone(list[:strings.LastIndexByte(list, ',')+1])
}

// maxText returns the maximum length of this event's texts.
func (e *Event) maxText() int {
	if unauthenticated(e.User) {
		return maxUnauthenticatedText
	}
	return maxText
}

// secretParameters are query parameters that clients use for tokens.
var secretParameters = []string{"token", "access_token", "id_token", "refresh_token"}

// withoutTokens returns a URI with the values of these parameters redacted.
func withoutTokens(uri string) string {
	path, query, ok := strings.Cut(uri, "?")
	if !ok || !strings.Contains(strings.ToLower(query), "token") && !strings.Contains(query, "%") {
		return uri
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		key, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(key)
		if err == nil && slices.Contains(secretParameters, strings.ToLower(plain)) {
			parts[i] = key + "=REDACTED"
		}
	}
	return path + "?" + strings.Join(parts, "&")
}

// AppendJSON appends the event as an audit.k8s.io/v1 Event to out and returns
// it. It decodes bodies with d. It is written by hand because it runs for
// nearly every request.
func (e *Event) AppendJSON(out []byte, d *bodies) []byte {
	requested, sent := d.json(e.request, e.omitManagedFields), d.json(e.response, e.omitManagedFields)
	o := object{out: append(out, '{'), most: e.maxText()}
	o.text("kind", "Event")
	o.text("apiVersion", "audit.k8s.io/v1")
	o.text("level", string(e.Level))
	o.text("auditID", e.AuditID)
	o.text("stage", string(e.Stage))
	o.text("requestURI", withoutTokens(e.RequestURI))
	o.text("verb", e.Info.Verb)
	o.user("user", e.User)
	if e.Impersonated != nil {
		o.user("impersonatedUser", e.Impersonated)
	}
	if e.Constraint != "" {
		o.key("authenticationMetadata")
		inner := object{out: append(o.out, '{'), most: o.most}
		inner.text("impersonationConstraint", e.Constraint)
		o.out = append(inner.out, '}')
	}
	o.list("sourceIPs", e.from.addresses())
	o.optional("userAgent", e.UserAgent)
	if e.Info.IsResource {
		e.appendReference(&o)
	}
	e.appendStatus(&o)
	o.raw("requestObject", requested.json)
	o.raw("responseObject", sent.json)
	o.time("requestReceivedTimestamp", e.Received)
	o.time("stageTimestamp", e.At)
	e.appendAnnotations(&o, requested.cut || sent.cut)
	return append(o.out, '}')
}

func (e *Event) appendStatus(o *object) {
	if e.Status != nil {
		if status, err := json.Marshal(shortStatus(e.Status, o.most)); err == nil {
			o.raw("responseStatus", status)
		}
	} else if e.Code != 0 {
		o.key("responseStatus")
		o.out = append(o.out, `{"metadata":{},"code":`...)
		o.out = append(strconv.AppendInt(o.out, int64(e.Code), 10), '}')
	}
}

// shortStatus returns a copy of a status with its texts truncated, since they
// may quote the request.
func shortStatus(s *metav1.Status, most int) *metav1.Status {
	short := *s
	short.Message = shorten(s.Message, most)
	if s.Details != nil {
		details := *s.Details
		details.Name, details.Group, details.Kind = shorten(details.Name, most), shorten(details.Group, most), shorten(details.Kind, most)
		short.Details = &details
	}
	return &short
}

func (e *Event) appendReference(o *object) {
	o.key("objectRef")
	ref := object{out: append(o.out, '{'), most: o.most}
	ref.optional("resource", e.Info.Resource)
	ref.optional("namespace", e.Info.Namespace)
	name := e.Info.Name
	if name == "" {
		name = e.Object.Name
	}
	ref.optional("name", name)
	ref.optional("uid", e.Object.UID)
	ref.optional("apiGroup", e.Info.Group)
	ref.optional("apiVersion", e.Info.Version)
	ref.optional("resourceVersion", e.Object.ResourceVersion)
	ref.optional("subresource", e.Info.Subresource)
	o.out = append(ref.out, '}')
}

// truncated is upstream's annotation for a body that was left out because of
// its size.
const truncated = "audit.k8s.io/truncated"

// patchPrefix begins the annotations that hold the patches of webhooks.
const patchPrefix = "patch.webhook.admission.k8s.io/"

func (e *Event) appendAnnotations(o *object, cut bool) {
	if len(e.Annotations) == 0 && e.Decision == "" && !cut {
		return
	}
	o.key("annotations")
	inner := object{out: append(o.out, '{'), most: o.most}
	if e.Decision != "" {
		inner.text("authorization.k8s.io/decision", e.Decision)
		inner.text("authorization.k8s.io/reason", e.Reason)
	}
	if cut {
		inner.text(truncated, "true")
	}
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		if e.Level == LevelMetadata && strings.HasPrefix(key, patchPrefix) {
			continue // it shows a part of the body
		}
		inner.text(key, e.Annotations[key])
	}
	o.out = append(inner.out, '}')
}

// object appends the fields of a JSON object to out.
type object struct {
	out  []byte
	most int // maximum bytes of a text
	some bool
}

func (o *object) key(name string) {
	if o.some {
		o.out = append(o.out, ',')
	}
	o.some = true
	o.out = append(appendString(o.out, name), ':')
}

func (o *object) text(name, value string) {
	o.key(name)
	o.out = appendString(o.out, shorten(value, o.most))
}

func (o *object) optional(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

func (o *object) raw(name string, value []byte) {
	if value != nil {
		o.key(name)
		o.out = append(o.out, value...)
	}
}

func (o *object) list(name string, values []string) {
	if len(values) == 0 {
		return
	}
	o.key(name)
	o.out = append(o.out, '[')
	for i, v := range values {
		if i > 0 {
			o.out = append(o.out, ',')
		}
		o.out = appendString(o.out, v)
	}
	o.out = append(o.out, ']')
}

func (o *object) time(name string, t time.Time) {
	o.key(name)
	o.out = append(o.out, '"')
	o.out = append(t.UTC().AppendFormat(o.out, metav1.RFC3339Micro), '"')
}

func (o *object) user(name string, u *request.User) {
	o.key(name)
	inner := object{out: append(o.out, '{'), most: o.most}
	if u != nil {
		inner.optional("username", u.Name)
		inner.optional("uid", u.UID)
		inner.list("groups", u.Groups)
		if len(u.Extra) > 0 {
			inner.key("extra")
			extra := object{out: append(inner.out, '{'), most: o.most}
			for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
				if len(u.Extra[key]) == 0 {
					extra.raw(key, []byte("[]"))
				}
				extra.list(key, u.Extra[key])
			}
			inner.out = append(extra.out, '}')
		}
	}
	o.out = append(inner.out, '}')
}

// appendString appends a JSON string. It escapes control characters, so that a
// client cannot break the line of the log.
func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil {
				return strconv.AppendQuoteToASCII(out, s)
			}
			return append(out, quoted...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}
