package client

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxErrorBody limits how much of an error response is read, in bytes.
const maxErrorBody = 1 << 20

// statusError returns the error of a failed request: the server's Status, or one made
// from the HTTP status code if something else answered (a proxy, say).
func (c *Client) statusError(resp *http.Response, r Request) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", r.method(), r.Path, err)
	}
	var status metav1.Status
	if c.decodeInto(body, mediaType(resp.Header), &status) == nil && status.Status == metav1.StatusFailure {
		if status.Code == 0 {
			status.Code = int32(resp.StatusCode)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	seconds := 0
	if wait, ok := retryAfter(resp); ok {
		seconds = int(wait.Seconds())
	}
	text := strings.TrimSpace(string(body))
	if text == "" {
		text = resp.Status
	}
	if len(text) > 1024 {
		text = text[:1024]
	}
	resource, name := resourceOf(r.Path)
	return apierrors.NewGenericServerResponse(resp.StatusCode, r.method(), resource, name, text, seconds, true)
}

// resourceOf parses the resource and the name in an API path; each is empty if absent.
func resourceOf(path string) (schema.GroupResource, string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var gr schema.GroupResource
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gr.Group = parts[1]
		parts = parts[3:]
	default:
		return gr, ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	gr.Resource = parts[0]
	if len(parts) > 1 {
		return gr, parts[1]
	}
	return gr, ""
}
