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

// Requests without a known user cost their senders nothing. So that they cannot
// push everything else out of a log that is rotated, few of them are recorded
// one by one; the others are counted and reported in one event.
const (
	strangersPerSecond = 1
	strangersBurst     = 100
	reportEvery        = 30 * time.Second // how soon what was not recorded is reported
)

// Annotations of the events that report others.
const (
	annotationSuppressed = "podium.dev/suppressed-events"
	annotationLost       = "podium.dev/lost-events"
)

// stranger says whether anybody can send requests as this user.
func stranger(u *request.User) bool { return u == nil || u.In(request.Unauthenticated) }

// strangers decides which requests of strangers are recorded.
type strangers struct {
	limit *rate.Limiter

	mu         sync.Mutex
	suppressed int       // requests since the last report
	since      time.Time // the first of them
}

func newStrangers() *strangers {
	return &strangers{limit: rate.NewLimiter(strangersPerSecond, strangersBurst)}
}

// admit says whether the request of a stranger is recorded.
func (s *strangers) admit(now time.Time) bool {
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

// take returns what is to be reported, and starts to count anew.
func (s *strangers) take() (suppressed int, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	suppressed, s.suppressed = s.suppressed, 0
	return suppressed, s.since
}

// reportStrangers queues an event about the requests that were not recorded.
func (a *Auditor) reportStrangers() {
	n, since := a.strangers.take()
	if n == 0 {
		return
	}
	message := fmt.Sprintf("%d requests without a known user are not recorded one by one: there were more than %d a second", n, strangersPerSecond)
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
