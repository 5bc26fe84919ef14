package audit

import (
	"bytes"
	"context"
	"io"
	"time"

	"podium/pkg/apiserver/webhook"
	"podium/pkg/client"
)

// LogBackend writes each event as a line of JSON to Out.
type LogBackend struct{ Out io.Writer }

// flushAt is the number of bytes after which the backend calls Out.Write.
const flushAt = 64 << 10

// Write implements Backend.
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

// WebhookBackend posts events to a service.
type WebhookBackend struct{ service *webhook.Service }

// NewWebhook returns a backend that posts to a service. It makes up to five
// attempts if the failure is temporary, with back-off; the first pause is
// backoff.
func NewWebhook(to client.Config, backoff time.Duration) (*WebhookBackend, error) {
	service, err := webhook.New(to, webhook.Bounds{Try: 30 * time.Second, Tries: 5, Pause: backoff})
	return &WebhookBackend{service}, err
}

// Write implements Backend. It posts one EventList.
func (w *WebhookBackend) Write(ctx context.Context, events [][]byte) error {
	text := append([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`), bytes.Join(events, []byte(","))...)
	_, err := w.service.Post(ctx, append(text, "]}"...))
	return err
}
