package audit

import (
	"bytes"
	"context"
	"io"
	"time"

	"podium/pkg/apiserver/webhook"
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

// WebhookBackend posts lists of events to a service.
type WebhookBackend struct{ service *webhook.Service }

// NewWebhook makes a backend of a service. It waits backoff before its second
// try, when the first fails for reasons that may pass.
func NewWebhook(to client.Config, backoff time.Duration) (*WebhookBackend, error) {
	service, err := webhook.New(to, webhook.Bounds{Try: 30 * time.Second, Tries: 5, Pause: backoff})
	return &WebhookBackend{service}, err
}

// Write posts an EventList.
func (w *WebhookBackend) Write(ctx context.Context, events [][]byte) error {
	text := append([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`), bytes.Join(events, []byte(","))...)
	_, err := w.service.Post(ctx, append(text, "]}"...))
	return err
}
