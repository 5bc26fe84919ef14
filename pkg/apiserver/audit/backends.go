package audit

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
)

// LogBackend writes a line of JSON an event.
type LogBackend struct{ Out io.Writer }

// flushAt is how many bytes go into one write to the file.
const flushAt = 64 << 10

// Write adds lines to the log.
func (l *LogBackend) Write(_ context.Context, events [][]byte) error {
	var buf []byte
	for i, e := range events {
		buf = append(append(buf, e...), '\n')
		if len(buf) < flushAt && i < len(events)-1 {
			continue
		}
		if _, err := l.Out.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	return nil
}

// WebhookBackend posts lists of events to a service, and tries again when that
// fails for reasons that may pass.
type WebhookBackend struct {
	service client.Config
	http    *http.Client
	backoff time.Duration // before the second try; each later one is half as long again
}

const (
	webhookTimeout = 30 * time.Second // of one try
	webhookTries   = 5
)

// NewWebhook makes a backend of the service that a kubeconfig names.
func NewWebhook(service client.Config, backoff time.Duration) (*WebhookBackend, error) {
	if len(service.Servers) != 1 {
		return nil, errors.New("the kubeconfig must name one server")
	}
	transport := service.Transport
	if transport == nil {
		transport = &http.Transport{TLSClientConfig: service.TLS, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second}
	}
	return &WebhookBackend{service: service, backoff: backoff, http: &http.Client{
		Transport: transport, Timeout: webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Write posts an EventList.
func (w *WebhookBackend) Write(ctx context.Context, events [][]byte) error {
	text := append([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`), bytes.Join(events, []byte(","))...)
	text = append(text, "]}"...)
	wait := w.backoff
	for try := 1; ; try++ {
		again, err := w.post(ctx, text)
		if err == nil || !again || try == webhookTries {
			return err
		}
		timer := time.NewTimer(wait + rand.N(wait/5+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		wait += wait / 2
	}
}

// post sends a list once; again says that it may go better another time.
func (w *WebhookBackend) post(ctx context.Context, text []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.service.Servers[0], bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	if w.service.Token != nil {
		token, err := w.service.Token()
		if err != nil {
			return true, err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := w.http.Do(r)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection serves again
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return false, nil
	case code == http.StatusTooManyRequests || code >= 500:
		return true, fmt.Errorf("the webhook answers %s", resp.Status)
	default:
		return false, fmt.Errorf("the webhook answers %s", resp.Status)
	}
}
