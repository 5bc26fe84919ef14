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

// Bounded is a transport that cuts answers off at a mebibyte; to is nil or what
// carries the requests in the place of the network.
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

// NoRedirects is for http.Client.CheckRedirect: who is sent elsewhere would be
// given the question, and the token with it, there.
func NoRedirects(*http.Request, []*http.Request) error { return errors.New("it sends elsewhere") }

type bounded struct{ http.RoundTripper }

// RoundTrip cuts the answer off where it is too long.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

var errTooLong = errors.New("the answer is too long")

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
