package cbor

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// The media types.
const (
	Media = "application/cbor"
	// Seq is a sequence of objects: the events of a watch.
	Seq = "application/cbor-seq"
	// Apply is the body of a server-side apply.
	Apply = "application/apply-patch+cbor"
)

// applyText is the media type that an apply is translated to.
const applyText = "application/apply-patch+yaml"

// Serve serves a request with next, which speaks JSON. It costs nothing unless the
// request has a CBOR body or accepts CBOR. The body must have been read
// (wire.FetchBody), if there is one.
func Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r, err := translated(w, r)
	if err != nil {
		wire.WriteError(w, r, err)
		return
	}
	accept, ok := acceptJSON(r.Header.Get("Accept"))
	if !ok {
		next.ServeHTTP(w, r)
		return
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", accept)
	r.Header.Del("Accept-Encoding") // the response is translated as it is written
	t := &response{ResponseWriter: w, stream: isWatch(r)}
	defer t.close()
	next.ServeHTTP(t, r)
}

// translated returns the request with its CBOR body as JSON, or the request itself if
// it has none.
func translated(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	media := wire.ContentType(r)
	if media != Media && media != Apply {
		return r, nil
	}
	data, err := wire.ReadBody(w, r)
	if err != nil {
		return r, err
	}
	text, err := ToJSON(data, wire.MaxBody)
	switch {
	case errors.Is(err, ErrTooLarge):
		return r, apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return r, apierrors.NewBadRequest("the body of the request could not be decoded: " + err.Error())
	}
	out := r.Clone(r.Context())
	out.Header.Set("Content-Type", scheme.JSON)
	if media == Apply {
		out.Header.Set("Content-Type", applyText)
	}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return out, nil
}

// acceptJSON returns the Accept header that asks for JSON where accept asks for CBOR.
// ok is false if accept does not ask for CBOR, or prefers another form.
func acceptJSON(accept string) (translated string, ok bool) {
	if !strings.Contains(accept, Media) {
		return "", false
	}
	if preferred := preferred(accept); preferred != Media && preferred != Seq {
		return "", false
	}
	return strings.ReplaceAll(strings.ReplaceAll(accept, Seq, scheme.JSON), Media, scheme.JSON), true
}

func isWatch(r *http.Request) bool {
	req := request.From(r.Context())
	return req != nil && req.Verb == "watch"
}

// preferred returns the media type of the clause with the highest quality, the first
// one of several. RFC 9110, section 12.5.1.
func preferred(accept string) string {
	var best string
	var quality float64
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, _ := strings.Cut(clause, ";")
		q := 1.0
		for param := range strings.SplitSeq(params, ";") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
				if value, err := strconv.ParseFloat(text, 64); err == nil {
					q = value
				}
			}
		}
		if q > quality {
			best, quality = strings.ToLower(strings.TrimSpace(media)), q
		}
	}
	return best
}

// response translates a JSON response to CBOR; others, such as the text of logs, it
// leaves as they are.
type response struct {
	http.ResponseWriter
	stream  bool     // a watch
	encoder *encoder // nil: the response is not translated
	begun   bool
}

// WriteHeader sends the header, with the media type of the translation.
func (t *response) WriteHeader(code int) {
	t.begin()
	t.ResponseWriter.WriteHeader(code)
}

func (t *response) begin() {
	if t.begun {
		return
	}
	t.begun = true
	h := t.Header()
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	if strings.TrimSpace(media) != scheme.JSON {
		return
	}
	if t.stream {
		h.Set("Content-Type", Seq)
	} else {
		h.Set("Content-Type", Media)
	}
	h.Del("Content-Length")
	t.encoder = &encoder{out: t.ResponseWriter}
}

// Write translates a part of the body.
func (t *response) Write(p []byte) (int, error) {
	t.begin()
	if t.encoder == nil {
		return t.ResponseWriter.Write(p)
	}
	return t.encoder.Write(p)
}

// FlushError sends what has been written so far.
func (t *response) FlushError() error {
	t.begin()
	if t.encoder != nil {
		if err := t.encoder.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(t.ResponseWriter).Flush()
}

// Unwrap returns the writer of the translation, for http.ResponseController.
func (t *response) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *response) close() {
	if t.encoder != nil {
		_ = t.encoder.Flush() // the connection is gone: the server sees that as well
	}
}
