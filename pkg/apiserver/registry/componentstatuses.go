package registry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

//lint:file-ignore SA1019 ComponentStatuses are deprecated, and served.

// probeTimeout bounds the probe of a component.
const probeTimeout = 5 * time.Second

// componentStatuses says whether the components of the control plane are healthy, as
// seen from this API server. A status is the result of a probe during the request.
func componentStatuses(k *scheme.Kind, cfg Config) *Kind {
	doc := corev1.ComponentCondition{}.SwaggerDoc()
	p := &prober{components: cfg.Components}
	return Of[*corev1.ComponentStatus]{
		Compute:    p.statuses,
		Columns:    columns(column("Status", doc["status"]), column("Message", doc["message"]), column("Error", doc["error"])),
		Row:        componentStatusRow,
		Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
	}.Kind(k)
}

func componentStatusRow(s *corev1.ComponentStatus, _ time.Time) []any {
	for _, c := range s.Conditions {
		if c.Type != corev1.ComponentHealthy {
			continue
		}
		text := "Unhealthy"
		if c.Status == corev1.ConditionTrue {
			text = "Healthy"
		}
		return []any{s.Name, text, c.Message, c.Error}
	}
	return []any{s.Name, "Unknown", "", ""}
}

// prober asks components for their health. However many requests wait for the health of
// a component, one probe runs.
type prober struct {
	components []Component
	running    singleflight.Group
}

// statuses returns the status of the component of that name, or all if name is "", in
// the order of names.
func (p *prober) statuses(ctx context.Context, name string) []*corev1.ComponentStatus {
	var out []*corev1.ComponentStatus
	var probes sync.WaitGroup
	for _, c := range p.components {
		if name != "" && name != c.Name {
			continue
		}
		status := &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
		out = append(out, status)
		probes.Go(func() { status.Conditions = []corev1.ComponentCondition{p.condition(ctx, c)} })
	}
	probes.Wait()
	slices.SortFunc(out, func(a, b *corev1.ComponentStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// condition probes a component. The probe does not end with the request, since others
// may wait for it, but after probeTimeout.
func (p *prober) condition(ctx context.Context, c Component) corev1.ComponentCondition {
	type answer struct {
		message string
		err     error
	}
	probe := p.running.DoChan(c.Name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		message, err := c.Probe(ctx)
		return answer{message, err}, nil
	})
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionUnknown}
	select {
	case <-ctx.Done():
		condition.Error = ctx.Err().Error()
	case result := <-probe:
		if a := result.Val.(answer); a.err != nil {
			condition.Status, condition.Message = corev1.ConditionFalse, a.err.Error()
		} else {
			condition.Status, condition.Message = corev1.ConditionTrue, a.message
		}
	}
	return condition
}
