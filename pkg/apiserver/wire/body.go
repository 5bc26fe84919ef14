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

// MaxBody is how large a request's body may be.
const MaxBody = 3 << 20

// Body is a request's body that has been read.
type Body struct {
	*bytes.Reader
	data []byte
}

// Close does nothing.
func (*Body) Close() error { return nil }

// FetchBody reads a request's body to its end and puts what it has read in its
// place. It ends with the request's context, however slowly the client sends.
func FetchBody(w http.ResponseWriter, r *http.Request) error {
	data, err := readWithin(w, r)
	if err != nil {
		return err
	}
	r.Body = &Body{bytes.NewReader(data), data}
	return nil
}

// ReadBody returns a request's body; one that is too large is an error which
// becomes a 413. A body that FetchBody has read is not copied.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if body, ok := r.Body.(*Body); ok {
		r.Body = http.NoBody
		return body.data, nil
	}
	return readWithin(w, r)
}

// readWithin is read, cut short when the request's context ends.
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
		<-cut // the connection is not to be touched once the handler has returned
		if err != nil {
			return nil, r.Context().Err()
		}
	}
	return data, err
}

// firstRead is how much room a body gets before anything of it has come: what
// the client only promises takes no memory.
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

// ContentType is the media type of a request's body, without parameters.
func ContentType(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// badBody is the error of a body that could not be read to its end.
func badBody(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return err
	}
	return apierrors.NewBadRequest("the body of the request could not be read: " + err.Error())
}
