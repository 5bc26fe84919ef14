package probes

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The first check comes after the initial delay, counted from the start of the container. A
// start in the future, because the clock was set back, counts as now.
func TestInitialDelay(t *testing.T) {
	for name, tc := range map[string]struct{ age, want time.Duration }{
		"New":    {0, 5 * time.Second},
		"Old":    {time.Hour, 0},
		"Future": {-time.Hour, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				begin := time.Now()
				var asked time.Duration
				check := Checker{Dial: func(context.Context, string, string) (net.Conn, error) {
					asked = time.Since(begin)
					stop()
					return nil, context.Canceled
				}}
				s := New(Config{Check: check, Log: slog.New(slog.DiscardHandler)}, func() {})
				probe := &corev1.Probe{InitialDelaySeconds: 5, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
				s.Keep(ctx, []Target{{Pod: podAt(), Container: &corev1.Container{Name: "c", ReadinessProbe: probe}, ID: "c", Started: begin.Add(-tc.age)}}, false)
				s.Wait()
				if asked != tc.want {
					t.Errorf("checked after %v, want %v", asked, tc.want)
				}
			})
		})
	}
}
