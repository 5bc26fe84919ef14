package wire

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Format is the form of an answer that client and server have agreed on.
type Format struct {
	Media  string                   // scheme.JSON, YAML or Protobuf
	As     *schema.GroupVersionKind // another kind to show the object as; nil: its own
	Pretty bool                     // indented JSON
}

// Offer is what an endpoint can answer with besides its own objects in every
// media type.
type Offer struct {
	As     []string // kinds of meta.k8s.io the answer can be shown as: "Table", ...
	Groups []string // API groups those kinds are of; nil: meta.k8s.io
	Stream bool     // the answer is a stream: no YAML
}

// Kinds of meta.k8s.io that show another object.
const (
	Table                     = "Table"
	PartialObjectMetadata     = "PartialObjectMetadata"
	PartialObjectMetadataList = "PartialObjectMetadataList"
)

// AcceptedMedia is what the server reads and writes, best first.
func AcceptedMedia() []string { return []string{scheme.JSON, scheme.YAML, scheme.Protobuf} }

// Negotiate chooses the answer's form by the Accept header.
func Negotiate(r *http.Request, offer Offer) (Format, error) {
	switch accept := r.Header.Get("Accept"); accept {
	case scheme.Protobuf, "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf, application/json":
		return Format{Media: scheme.Protobuf}, nil
	case "", "*/*", scheme.JSON, "application/json, */*":
		return Format{Media: scheme.JSON, Pretty: pretty(r, nil)}, nil
	default:
		for _, c := range parseAccept(accept) {
			if f, ok := offer.accepts(c); ok {
				f.Pretty = f.Media == scheme.JSON && pretty(r, c.params)
				return f, nil
			}
		}
	}
	accepted := AcceptedMedia()
	if offer.Stream {
		accepted = []string{scheme.JSON, scheme.Protobuf}
	}
	return Format{Media: scheme.JSON}, NotAcceptable(accepted)
}

// NotAcceptable is the 406 of a request that wants none of these media types.
func NotAcceptable(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}}
}

// TooLargeFor is the 406 of an answer that is not made in the form that the
// client asks for: it would have more than limit bytes.
func TooLargeFor(media string, limit int) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("answers of more than %d bytes are not made as %s: ask for application/json, or for pages by limit", limit, media),
	}}
}

// UnsupportedMedia is the 415 of a body in none of these media types.
func UnsupportedMedia(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

func (o Offer) accepts(c clause) (Format, bool) {
	f := Format{Media: c.media()}
	if f.Media == "" || f.Media == scheme.YAML && o.Stream {
		return f, false
	}
	as := c.params["as"]
	if as == "" {
		return f, true
	}
	if !slices.Contains(o.As, as) || as == Table && f.Media == scheme.Protobuf {
		return f, false
	}
	group, version := c.params["g"], c.params["v"]
	if o.Groups == nil {
		if group != metav1.GroupName || version != "v1" && version != "v1beta1" {
			return f, false
		}
	} else if !slices.Contains(o.Groups, group+"/"+version) {
		return f, false
	}
	f.As = &schema.GroupVersionKind{Group: group, Version: version, Kind: as}
	return f, true
}

// pretty says whether a person is likely to read the JSON.
func pretty(r *http.Request, params map[string]string) bool {
	if p, ok := params["pretty"]; ok {
		return p == "1" || p == "true"
	}
	if strings.Contains(r.URL.RawQuery, "pretty=") {
		if p := r.URL.Query().Get("pretty"); p != "" {
			on, err := strconv.ParseBool(p)
			return err == nil && on
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// clause is one alternative of an Accept header.
type clause struct {
	typ, subtype string
	q            float64
	params       map[string]string
}

// media is the best media type the server has for the clause.
func (c clause) media() string {
	for _, m := range AcceptedMedia() {
		typ, subtype, _ := strings.Cut(m, "/")
		if (c.typ == "*" || c.typ == typ) && (c.subtype == "*" || c.subtype == subtype) {
			return m
		}
	}
	return ""
}

// parseAccept reads an Accept header, the client's favourite first.
// RFC 9110, section 12.5.1.
func parseAccept(header string) []clause {
	var out []clause
	for part := range strings.SplitSeq(header, ",") {
		fields := strings.Split(part, ";")
		typ, subtype, ok := strings.Cut(strings.TrimSpace(fields[0]), "/")
		if !ok {
			if typ != "*" {
				continue
			}
			subtype = "*"
		}
		c := clause{typ: strings.ToLower(typ), subtype: strings.ToLower(subtype), q: 1}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(strings.TrimSpace(f), "=")
			if key == "q" {
				if q, err := strconv.ParseFloat(value, 64); err == nil {
					c.q = q
				}
				continue
			}
			if c.params == nil {
				c.params = map[string]string{}
			}
			c.params[key] = strings.Trim(value, `"`)
		}
		if c.q > 0 {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b clause) int {
		switch {
		case a.q != b.q:
			return cmpFloat(b.q, a.q)
		default:
			return a.wildness() - b.wildness()
		}
	})
	return out
}

func cmpFloat(a, b float64) int {
	if a < b {
		return -1
	}
	return 1
}

// wildness ranks clauses of equal weight: the more specific comes first.
func (c clause) wildness() int {
	switch {
	case c.typ == "*":
		return 2
	case c.subtype == "*":
		return 1
	}
	return 0
}
