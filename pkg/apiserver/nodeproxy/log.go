package nodeproxy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/client/streams"
)

// podLog streams a container's log from its kubelet, as plain HTTP or over a
// WebSocket. It writes an empty log for a pod without a node.
func (p *Proxy) podLog(req *request) error {
	q := req.r.URL.Query()
	out, errs := logQuery(q)
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, req.name, errs)
	}
	pod, err := get[*corev1.Pod](req, "pods", req.namespace, req.name)
	if err != nil {
		return err
	}
	container, err := pickContainer(pod, q.Get("container"))
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		req.w.Header().Set("Content-Type", "text/plain")
		req.w.WriteHeader(http.StatusOK)
		return nil
	}
	k, err := p.kubelet(req, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(req.r.Context())
	defer cancel()
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url(out, "containerLogs", pod.Namespace, pod.Name, container).String(), nil)
	if err != nil {
		return err
	}
	resp, err := kubeletTransport{p.kubelets, k.node}.RoundTrip(get)
	if err != nil {
		return unreachable(&url.Error{Op: "Get", URL: get.URL.String(), Err: err})
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode > http.StatusPartialContent {
		return logFailure(resp, req.name)
	}
	if streams.IsWebSocket(req.r) {
		return logSocket(req, resp.Body, cancel)
	}
	return logPlain(req, resp.Body)
}

// logQuery validates the PodLogOptions in a query and returns the query for the
// kubelet.
func logQuery(q url.Values) (url.Values, field.ErrorList) {
	out := url.Values{}
	var errs field.ErrorList
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if flag(q, name) {
			out.Set(name, "true")
		}
	}
	if flag(q, "insecureSkipTLSVerifyBackend") {
		errs = append(errs, field.Forbidden(field.NewPath("insecureSkipTLSVerifyBackend"), "the kubelet's certificate is always verified"))
	}
	for _, n := range []struct {
		name  string
		least int64
		text  string
	}{
		{"tailLines", 0, "must be greater than or equal to 0"},
		{"limitBytes", 1, "must be greater than 0"},
		{"sinceSeconds", 1, "must be greater than 0"},
	} {
		text := q.Get(n.name)
		if text == "" {
			continue
		}
		v, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(n.name), text, "must be an integer"))
		case v < n.least || n.name == "sinceSeconds" && v > math.MaxInt32:
			errs = append(errs, field.Invalid(field.NewPath(n.name), v, n.text))
		}
		out.Set(n.name, text)
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("sinceTime"), text, "must be a time as in RFC 3339"))
		}
		if q.Get("sinceSeconds") != "" {
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		}
		out.Set("sinceTime", t.Format(time.RFC3339))
	}
	if stream := q.Get("stream"); stream != "" {
		known := []string{corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr}
		if stream != known[0] && stream != known[1] && stream != known[2] {
			errs = append(errs, field.NotSupported(field.NewPath("stream"), stream, known))
		}
		if stream != corev1.LogStreamAll && q.Get("tailLines") != "" {
			errs = append(errs, field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
		}
		out.Set("stream", stream)
	}
	return out, errs
}

// maxAnswer is the number of bytes of a kubelet's error that are passed on.
const maxAnswer = 50000

// logFailure returns the API error for a kubelet's error response.
func logFailure(resp *http.Response, name string) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	text := string(body)
	switch resp.StatusCode {
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(text))
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(text)
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, "", schema.GroupResource{Resource: "pods/log"}, name, text, 0, false)
}

// logPlain copies a log to the client and flushes each piece, since the next
// one may come an hour later.
func logPlain(req *request, body io.Reader) error {
	req.w.Header().Set("Content-Type", "text/plain")
	req.w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(req.w)
	rc.Flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := req.w.Write(buf[:n]); err != nil {
				return nil // the client has disconnected
			}
			rc.Flush()
		}
		if err != nil {
			return nil // the end of the log, or an error after the response has begun
		}
	}
}

// The WebSocket subprotocols of logs: raw bytes, or base64 text.
const (
	binaryProtocol = "binary.k8s.io"
	base64Protocol = "base64.binary.k8s.io"
)

// logSocket copies a log into WebSocket messages. It ignores what the client
// sends. It calls hangUp, which must end reads of body, when the client closes
// the connection.
func logSocket(req *request, body io.Reader, hangUp func()) error {
	protocol, err := streams.Negotiate(req.r, []string{"", binaryProtocol, base64Protocol})
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	ws, err := streams.Accept(req.w, req.r, protocol)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("unable to upgrade: %v", err))
	}
	ch := streams.NewChannels(ws, protocol)
	go func() {
		ch.Run()
		hangUp()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 && send(ws, protocol, buf[:n]) != nil || err != nil {
			break
		}
	}
	ch.Close(streams.CloseNormal, "")
	return nil
}

func send(ws *streams.WebSocket, protocol string, p []byte) error {
	if protocol == base64Protocol {
		return ws.Write(streams.OpText, []byte(base64.StdEncoding.EncodeToString(p)))
	}
	return ws.Write(streams.OpBinary, p)
}
