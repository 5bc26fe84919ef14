package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
)

// Bounds limit the calls of a service.
type Bounds struct {
	Within time.Duration // total time of a call with its retries; 0: no limit
	Try    time.Duration // time of each attempt; 0: no limit
	Tries  int           // number of attempts, at least 1
	Pause  time.Duration // before the second attempt; 1.5 times as long before each later one
	AtOnce int           // concurrent calls; 0: no limit
}

// Service is a client of a service that takes JSON by POST. It is safe for
// concurrent use.
type Service struct {
	to     client.Config
	bounds Bounds
	http   *http.Client
	places chan struct{} // a semaphore; nil: no limit
}

// ErrBusy is returned when the limit of concurrent calls is reached.
var ErrBusy = errors.New("too many questions are under way")

// Load reads a kubeconfig: its cluster is the service, its user this server's
// credentials.
func Load(file string) (client.Config, error) {
	config, err := kubeconfig.Load(file)
	if err != nil {
		return client.Config{}, err
	}
	to, _, err := config.Client("")
	if err == nil && to.Proxy != nil {
		return client.Config{}, errors.New("a proxy-url is not supported: the service must be reached directly")
	}
	return to, err
}

// New returns a client of the service at an address. It does not connect.
func New(to client.Config, b Bounds) (*Service, error) {
	if len(to.Servers) != 1 {
		return nil, errors.New("the kubeconfig must name one server")
	}
	s := &Service{to: to, bounds: b, http: &http.Client{
		Transport: Bounded(to.TLS, to.Transport), Timeout: b.Try, CheckRedirect: NoRedirects,
	}}
	if b.AtOnce > 0 {
		s.places = make(chan struct{}, b.AtOnce)
	}
	return s, nil
}

// Post sends a request body and returns the response body. It blocks, and
// retries with back-off if the service is unreachable or answers 429 or 5xx. It
// returns ErrBusy without blocking if too many calls are in flight.
func (s *Service) Post(ctx context.Context, question []byte) ([]byte, error) {
	if s.places != nil {
		select {
		case s.places <- struct{}{}:
			defer func() { <-s.places }()
		default:
			return nil, ErrBusy
		}
	}
	if s.bounds.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.bounds.Within)
		defer cancel()
	}
	pause := s.bounds.Pause
	for try := 1; ; try++ {
		answer, again, err := s.once(ctx, question)
		if err == nil || !again || try >= s.bounds.Tries {
			return answer, err
		}
		timer := time.NewTimer(pause + rand.N(pause/5+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
		pause += pause / 2
	}
}

// once makes one attempt. again reports whether a retry may succeed.
func (s *Service) once(ctx context.Context, question []byte) (answer []byte, again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.Servers[0], bytes.NewReader(question))
	if err != nil {
		return nil, false, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if s.to.Token != nil {
		token, err := s.to.Token()
		if err != nil {
			return nil, true, err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, true, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests || code >= 500:
		return nil, true, fmt.Errorf("the webhook answers %s", resp.Status)
	case code < 200 || code > 299:
		return nil, false, fmt.Errorf("the webhook answers %s", resp.Status)
	case errors.Is(err, errTooLong):
		return nil, false, err
	}
	return answer, err != nil, err
}
