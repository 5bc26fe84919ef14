package probes

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxRedirects limits the redirects on the same host.
const maxRedirects = 10

func (k Checker) http(ctx context.Context, pod *corev1.Pod, c *corev1.Container, action *corev1.HTTPGetAction, timeout time.Duration) Result {
	req, err := Request(ctx, pod, c, action, UserAgent)
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	client := HTTPClient(k.Dial, timeout)
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return Result{Failure, err.Error()}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	switch {
	case err != nil:
		return Result{Failure, err.Error()}
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return Result{Warning, fmt.Sprintf("Probe terminated redirects, Response body: %v", string(body))}
	case res.StatusCode >= 200 && res.StatusCode < 400:
		return Result{Success, string(body)}
	}
	return Result{Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", res.StatusCode)}
}

// HTTPClient returns a client that does not reuse connections and follows redirects
// on the same host only. It does not verify certificates: upstream documents that
// "the kubelet sends an HTTPS request skipping the certificate verification" (scheme
// of httpGet), and pods have certificates for their Service's name, not for the
// address that is probed. A probe only checks whether the container answers; it
// sends no credential and shows only the beginning of a failed response.
func HTTPClient(dial Dial, timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:       dial,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // see above
			DisableKeepAlives: true, DisableCompression: true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= maxRedirects {
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
}

// Request returns the request of an httpGet action of a probe or a lifecycle hook.
func Request(ctx context.Context, pod *corev1.Pod, c *corev1.Container, action *corev1.HTTPGetAction, agent string) (*http.Request, error) {
	port, err := Port(action.Port, c)
	if err != nil {
		return nil, err
	}
	host, err := hostOf(action.Host, pod)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path}
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	u.Scheme = strings.ToLower(string(action.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "*/*")
	set := map[string]bool{}
	for _, h := range action.HTTPHeaders {
		name := http.CanonicalHeaderKey(h.Name)
		switch {
		case name == "Host":
			req.Host = h.Value
		case set[name]:
			req.Header.Add(name, h.Value)
		case h.Value == "" && (name == "User-Agent" || name == "Accept"):
			req.Header.Del(name) // empty in the spec: do not send it
			if name == "User-Agent" {
				req.Header.Set(name, "")
			}
		default:
			req.Header.Set(name, h.Value)
		}
		set[name] = true
	}
	return req, nil
}
