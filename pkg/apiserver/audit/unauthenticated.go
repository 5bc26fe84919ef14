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

// An unauthenticated request costs its sender nothing. So that a flood of them
// cannot push all other records out of a log that is rotated, few are recorded
// one by one; the others are counted and reported in one event.
const (
	unauthenticatedPerSecond = 1
	unauthenticatedBurst     = 100
	reportEvery              = 30 * time.Second // between reports of requests that were not recorded
)

// Annotations of the events that report others.
const (
	annotationSuppressed = "podium.dev/suppressed-events"
	annotationLost       = "podium.dev/lost-events"
)

// unauthenticated says whether a request of this user needs no credential.
func unauthenticated(u *request.User) bool { return u == nil || u.In(request.Unauthenticated) }

// suppressor decides which unauthenticated requests are recorded.
type suppressor struct {
	limit *rate.Limiter

	mu         sync.Mutex
	suppressed int       // requests since the last report
	since      time.Time // the first of them
}

func newSuppressor() *suppressor {
	return &suppressor{limit: rate.NewLimiter(unauthenticatedPerSecond, unauthenticatedBurst)}
}

// admit says whether an unauthenticated request is recorded.
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

// take returns what is to be reported, and restarts the count.
func (s *suppressor) take() (suppressed int, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	suppressed, s.suppressed = s.suppressed, 0
	return suppressed, s.since
}

// reportSuppressed queues an event about the requests that were not recorded, if
// there were any.
func (a *Auditor) reportSuppressed() {
	n, since := a.suppressor.take()
	if n == 0 {
		return
	}
	message := fmt.Sprintf("%d unauthenticated requests were not recorded: there were more than %d per second", n, unauthenticatedPerSecond)
	_ = a.queue(report(annotationSuppressed, n, http.StatusUnauthorized, message, since, a.now()))
}

// report is an event about n events or requests that have none of their own.
func report(annotation string, n, code int, message string, since, now time.Time) *Event {
	return &Event{
		Level: LevelMetadata, Stage: StageResponseComplete, AuditID: uuid.NewString(), Info: &request.Info{},
		User: &request.User{Name: "system:apiserver"}, Received: since, At: now,
		Status:      &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message},
		Annotations: map[string]string{annotation: fmt.Sprint(n)},
	}
}
