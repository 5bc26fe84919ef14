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

// Format is the negotiated form of a response.
type Format struct {
	Media  string                   // scheme.JSON, YAML or Protobuf
	As     *schema.GroupVersionKind // another kind to return the object as, such as Table; nil: its own
	Pretty bool                     // indented JSON
}

// Offer lists the forms that an endpoint supports besides its own objects in every
// media type.
type Offer struct {
	As     []string // other kinds for the response, such as "Table"
	Groups []string // group versions of these kinds; nil: meta.k8s.io v1 and v1beta1
	Stream bool     // the response is a stream, which excludes YAML

	// TextOnly excludes protobuf: the objects of the endpoint have no protobuf
	// encoding.
	TextOnly bool
}

// Kinds of meta.k8s.io that represent another object.
const (
	Table                     = "Table"
	PartialObjectMetadata     = "PartialObjectMetadata"
	PartialObjectMetadataList = "PartialObjectMetadataList"
)

// AcceptedMedia returns the supported media types, the preferred one first.
func AcceptedMedia() []string { return []string{scheme.JSON, scheme.YAML, scheme.Protobuf} }

// Negotiate selects the form of the response from the Accept header. It returns a
// 406 if the offer has no acceptable form.
func Negotiate(r *http.Request, offer Offer) (Format, error) {
	accept := r.Header.Get("Accept")
	switch accept {
	case scheme.Protobuf, "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf, application/json":
		if !offer.TextOnly {
			return Format{Media: scheme.Protobuf}, nil
		}
	case "", "*/*", scheme.JSON, "application/json, */*":
		return Format{Media: scheme.JSON, Pretty: pretty(r, nil)}, nil
	}
	for _, c := range parseAccept(accept) {
		if f, ok := offer.accepts(c); ok {
			f.Pretty = f.Media == scheme.JSON && pretty(r, c.params)
			return f, nil
		}
	}
	accepted := slices.DeleteFunc(AcceptedMedia(), func(media string) bool {
		return offer.Stream && media == scheme.YAML || offer.TextOnly && media == scheme.Protobuf
	})
	return Format{Media: scheme.JSON}, NotAcceptable(accepted)
}

// NotAcceptable returns the 406 that lists the accepted media types.
func NotAcceptable(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}}
}

// TooLargeFor returns the 406 for a response that exceeds the limit in bytes of its
// media type.
func TooLargeFor(media string, limit int) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("responses of more than %d bytes are not encoded as %s: request application/json, or pages with limit", limit, media),
	}}
}

// UnsupportedMedia returns the 415 for a body whose media type is not among
// accepted.
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
		return f, !o.TextOnly || f.Media != scheme.Protobuf
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

// pretty reports whether to indent JSON: if the request says so, else if the client
// is curl, Wget or a browser.
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

// media returns the preferred supported media type that matches the clause, or "".
func (c clause) media() string {
	for _, m := range AcceptedMedia() {
		typ, subtype, _ := strings.Cut(m, "/")
		if (c.typ == "*" || c.typ == typ) && (c.subtype == "*" || c.subtype == subtype) {
			return m
		}
	}
	return ""
}

// parseAccept parses an Accept header and returns its clauses in the order of
// preference. RFC 9110, section 12.5.1.
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

// wildness orders clauses of equal weight: more specific ones come first.
func (c clause) wildness() int {
	switch {
	case c.typ == "*":
		return 2
	case c.subtype == "*":
		return 1
	}
	return 0
}
