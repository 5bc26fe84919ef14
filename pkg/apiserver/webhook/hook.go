package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/backends"
	"podium/pkg/scheme"
)

// Dial opens a connection to an endpoint of a Service.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Hook is the connections to the server of a webhook that an object of the cluster
// describes. It is safe for concurrent use.
type Hook struct {
	url  url.URL
	http *http.Client
}

const (
	defaultPort = 443
	idleTimeout = 90 * time.Second
)

// HookKey returns what identifies the server of a webhook.
func HookKey(c *registration.WebhookClientConfig) string {
	if c.URL != nil {
		return *c.URL + "\n" + string(c.CABundle)
	}
	if s := c.Service; s != nil {
		return fmt.Sprintf("%s/%s:%d %s\n%s", s.Namespace, s.Name, portOf(s), pathOf(s), c.CABundle)
	}
	return ""
}

func portOf(s *registration.ServiceReference) int32 {
	if s.Port == nil {
		return defaultPort
	}
	return *s.Port
}

func pathOf(s *registration.ServiceReference) string {
	if s.Path == nil {
		return ""
	}
	return *s.Path
}

// NewHook returns the connections to the server that c describes. It finds the endpoints
// of a Service in o, and connects to them with dial; nil: TCP. It does not
// connect.
func NewHook(c *registration.WebhookClientConfig, o backends.Objects, dial Dial) (*Hook, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bytes.TrimSpace(c.CABundle)) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(c.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	transport := &http.Transport{
		TLSClientConfig: trust, TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout,
		MaxIdleConnsPerHost: 25, MaxResponseHeaderBytes: 64 << 10,
	}
	out := &Hook{http: &http.Client{Transport: transport, CheckRedirect: NoRedirects}}
	switch {
	case c.URL != nil:
		u, err := url.Parse(*c.URL)
		if err != nil {
			return nil, err
		}
		u.Path, u.RawPath = path.Join("/", u.Path), "" // in https://host//path servers would redirect
		out.url, transport.Proxy = *u, http.ProxyFromEnvironment
	case c.Service != nil:
		s := *c.Service
		host := s.Name + "." + s.Namespace + ".svc"
		trust.ServerName = host
		out.url = url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(portOf(&s)))), Path: path.Join("/", pathOf(&s))}
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialService(ctx, o, dial, network, &s)
		}
	default:
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	return out, nil
}

// dialService connects to a ready endpoint of a Service.
func dialService(ctx context.Context, o backends.Objects, dial Dial, network string, s *registration.ServiceReference) (net.Conn, error) {
	to, err := backends.Pick(ctx, o, s.Namespace, s.Name, strconv.Itoa(int(portOf(s))))
	if err != nil {
		return nil, err
	}
	if !to.IsValid() {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", s.Name))
	}
	return dial(ctx, network, to.String())
}

// Close closes the connections that are idle.
func (h *Hook) Close() { h.http.CloseIdleConnections() }

// Post sends a body as the program agent, and returns the body of the response, which
// may have at most limit bytes.
func (h *Hook) Post(ctx context.Context, agent string, body []byte, limit int64) ([]byte, error) {
	to := h.url
	if deadline, ok := ctx.Deadline(); ok {
		seconds := (time.Until(deadline) + time.Second - 1) / time.Second
		q := to.Query()
		q.Set("timeout", strconv.Itoa(int(seconds))+"s")
		to.RawQuery = q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", scheme.JSON)
	r.Header.Set("Accept", scheme.JSON+", */*")
	r.Header.Set("User-Agent", agent)
	resp, err := h.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(answer)) > limit:
		return nil, fmt.Errorf("the response is longer than %d bytes", limit)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, apierrors.NewGenericServerResponse(resp.StatusCode, "POST", schema.GroupResource{}, "", string(answer[:min(len(answer), 1<<10)]), 0, true)
	}
	return answer, nil
}
