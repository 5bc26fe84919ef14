package authn

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"
)

// What others are asked over the network is bounded: they may hang, and they
// may answer without end.
const (
	askTimeout = 10 * time.Second
	maxAnswer  = 1 << 20
)

// boundedClient asks a server that is not trusted to be quick or brief.
func boundedClient(cfg *tls.Config) *http.Client {
	return &http.Client{
		Timeout: askTimeout,
		Transport: bounded{&http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: askTimeout, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it sends elsewhere") // and would be given the token there
		},
	}
}

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
