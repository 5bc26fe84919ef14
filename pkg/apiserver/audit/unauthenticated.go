package audit

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
)

// Anyone can send unauthenticated requests. So that a flood of them cannot push
// all other records out of a rotated log, only a few are recorded individually;
// the rest are counted and reported in one event.
const (
	unauthenticatedPerSecond = 1
	unauthenticatedBurst     = 100
	reportEvery              = 30 * time.Second // between reports of requests that were not recorded
)

// Annotations of events that report a number of other events.
const (
	annotationSuppressed = "podium.dev/suppressed-events"
	annotationLost       = "podium.dev/lost-events"
)

// unauthenticated reports whether a user has no credential; nil has none.
func unauthenticated(u *request.User) bool { return u == nil || u.In(request.Unauthenticated) }

// suppressor decides which unauthenticated requests are recorded. It is safe
// for concurrent use.
type suppressor struct {
	limit *rate.Limiter

	mu         sync.Mutex
	suppressed int       // requests since the last report
	since      time.Time // the time of the first
}

func newSuppressor() *suppressor {
	return &suppressor{limit: rate.NewLimiter(unauthenticatedPerSecond, unauthenticatedBurst)}
}

// admit reports whether an unauthenticated request is recorded, and counts it
// if not.
func (s *suppressor) admit(now time.Time) bool {
	if s.limit.AllowN(now, 1) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suppressed == 0 {
		s.since = now
	}
	s.suppressed++
	return false
}

// take returns and resets the number of suppressed requests, with the time of
// the first.
func (s *suppressor) take() (suppressed int, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	suppressed, s.suppressed = s.suppressed, 0
	return suppressed, s.since
}

// reportSuppressed queues an event with the number of suppressed requests, if
// there were any.
func (a *Auditor) reportSuppressed() {
	n, since := a.suppressor.take()
	if n == 0 {
		return
	}
	message := fmt.Sprintf("%d unauthenticated requests were not recorded: there were more than %d per second", n, unauthenticatedPerSecond)
	_ = a.queue(report(annotationSuppressed, n, http.StatusUnauthorized, message, since, a.now()))
}

// report returns an event that stands for n events or requests which are not
// recorded individually.
func report(annotation string, n, code int, message string, since, now time.Time) *Event {
	return &Event{
		Level: LevelMetadata, Stage: StageResponseComplete, AuditID: uuid.NewString(), Info: &request.Info{},
		User: &request.User{Name: "system:apiserver"}, Received: since, At: now,
		Status:      &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message},
		Annotations: map[string]string{annotation: fmt.Sprint(n)},
	}
}
