package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/storage"
)

// StatusOf converts an error to the Status for the client. An error of an unknown
// kind becomes a 500.
func StatusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known):
	case errors.As(err, &tooLarge):
		known = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	case errors.Is(err, context.DeadlineExceeded):
		known = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	case errors.Is(err, context.Canceled):
		known = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 499, Message: "the client closed the request"}}
	case errors.Is(err, storage.ErrCompacted):
		known = apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	default:
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	if s.Status == "" {
		s.Status = metav1.StatusFailure
	}
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	return s
}

// WriteError writes an error as a Status in the media type that the client accepts,
// and returns the Status.
func WriteError(w http.ResponseWriter, r *http.Request, err error) metav1.Status {
	status := StatusOf(err)
	f, notAcceptable := Negotiate(r, Offer{})
	if notAcceptable != nil {
		f.Media = "application/json"
	}
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	if n, ok := w.(noter); ok {
		n.Note(&status)
	}
	WriteStatus(w, r, f, status)
	return status
}

// noter is implemented by response writers that record why a request failed.
type noter interface{ Note(*metav1.Status) }

// WriteStatus writes a Status of success or failure. Its code is the HTTP status; 0
// means 200.
func WriteStatus(w http.ResponseWriter, r *http.Request, f Format, status metav1.Status) error {
	code := int(status.Code)
	if code == 0 {
		code = http.StatusOK
	}
	f.As = nil
	return WriteObject(w, r, code, f, statusKind, Bare(&status))
}

var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}
