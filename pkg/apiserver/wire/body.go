package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MaxBody is how large a request's body may be.
const MaxBody = 3 << 20

// ReadBody reads a request's body; one that is too large is an error which
// becomes a 413.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > MaxBody {
		return nil, &http.MaxBytesError{Limit: MaxBody}
	}
	body := http.MaxBytesReader(w, r.Body, MaxBody)
	if r.ContentLength > 0 {
		data := make([]byte, r.ContentLength)
		n, err := io.ReadFull(body, data)
		if err != nil {
			return nil, badBody(err)
		}
		return data[:n], nil
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(body); err != nil {
		return nil, badBody(err)
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
