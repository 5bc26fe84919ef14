package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MaxBody is the maximum size of a request body in bytes.
const MaxBody = 3 << 20

// Body is a request body that FetchBody has read.
type Body struct {
	*bytes.Reader
	data []byte
}

// Close does nothing.
func (*Body) Close() error { return nil }

// FetchBody reads the whole body of a request and replaces r.Body by the result. It
// blocks until the client has sent the body or the context of the request ends.
func FetchBody(w http.ResponseWriter, r *http.Request) error {
	data, err := readWithin(w, r)
	if err != nil {
		return err
	}
	r.Body = &Body{bytes.NewReader(data), data}
	return nil
}

// ReadBody returns the body of a request and consumes it: a second call returns no
// data. It does not copy a body that FetchBody has read; otherwise it blocks as
// FetchBody does. For a body of more than MaxBody bytes, it returns an error that
// StatusOf turns into a 413.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if body, ok := r.Body.(*Body); ok {
		r.Body = http.NoBody
		return body.data, nil
	}
	return readWithin(w, r)
}

// readWithin reads the body and returns early with the error of the context if that
// ends.
func readWithin(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(cut)
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	})
	data, err := read(w, r)
	if !stop() {
		<-cut // do not use the connection after the handler has returned
		if err != nil {
			return nil, r.Context().Err()
		}
	}
	return data, err
}

// firstRead is the maximum buffer size before any data has arrived, so that a large
// Content-Length alone allocates no memory.
const firstRead = 64 << 10

func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > MaxBody {
		return nil, &http.MaxBytesError{Limit: MaxBody}
	}
	body := http.MaxBytesReader(w, r.Body, MaxBody)
	if r.ContentLength < 0 || r.ContentLength > firstRead {
		return readGrowing(body, r.ContentLength)
	}
	data := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, badBody(err)
	}
	return data, nil
}

// readGrowing reads length bytes, or to the end if length is negative.
func readGrowing(body io.Reader, length int64) ([]byte, error) {
	var b bytes.Buffer
	if length >= 0 {
		body = io.LimitReader(body, length)
	}
	if _, err := b.ReadFrom(body); err != nil {
		return nil, badBody(err)
	}
	if length >= 0 && int64(b.Len()) < length {
		return nil, badBody(io.ErrUnexpectedEOF)
	}
	return b.Bytes(), nil
}

// ContentType returns the media type of the request body in lower case, without
// parameters.
func ContentType(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// badBody returns the error for a body that could not be read to its end.
func badBody(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return err
	}
	return apierrors.NewBadRequest("the body of the request could not be read: " + err.Error())
}
