package webhook

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	handshakeTimeout = 10 * time.Second
	maxAnswer        = 1 << 20 // bytes
)

// Bounded returns a transport that limits response bodies to 1 MiB: reading
// more returns an error. It uses to, or, if to is nil, a new http.Transport
// with the TLS configuration trust.
func Bounded(trust *tls.Config, to http.RoundTripper) http.RoundTripper {
	if to == nil {
		to = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: handshakeTimeout, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return bounded{to}
}

// NoRedirects is an http.Client.CheckRedirect that refuses redirects, which
// would send the request and its token to another host.
func NoRedirects(*http.Request, []*http.Request) error { return errors.New("it sends elsewhere") }

type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

var errTooLong = errors.New("the answer is too long")

// limitedBody returns errTooLong once left bytes have been read.
type limitedBody struct {
	io.ReadCloser
	left int
}

func (l *limitedBody) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
