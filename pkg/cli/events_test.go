package cli

import (
	"strings"
	"testing"

	"podium/pkg/cli/rest"
)

// Events within one second are sorted by name, whatever the precision of their
// times: eventTime has microseconds, lastTimestamp has seconds.
func TestEventsOfOneSecond(t *testing.T) {
	event := func(name, reason string, fields map[string]any) rest.Object {
		fields["metadata"], fields["reason"] = map[string]any{"name": name}, reason
		return rest.Object{Object: fields}
	}
	got, err := toEvents([]rest.Object{
		event("web.3", "Pulled", map[string]any{"lastTimestamp": "2026-01-01T00:00:10Z"}),
		event("web.9", "Killing", map[string]any{"lastTimestamp": "2026-01-01T00:00:11Z"}),
		event("web.2", "Scheduled", map[string]any{"eventTime": "2026-01-01T00:00:10.900000Z"}),
		event("web.1", "FailedScheduling", map[string]any{"eventTime": "2026-01-01T00:00:02.000000Z", "series": map[string]any{"count": int64(2), "lastObservedTime": "2026-01-01T00:00:10.100000Z"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for i := range got {
		reasons = append(reasons, got[i].Reason)
	}
	if text := strings.Join(reasons, " "); text != "FailedScheduling Scheduled Pulled Killing" {
		t.Error(text)
	}
}
