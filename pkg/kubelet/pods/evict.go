package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/volumes"
)

// measurePeriod is upstream's: how long a volume may outgrow its limit unseen.
const measurePeriod = 10 * time.Second

// measureMounts evicts a pod one of whose volumes has outgrown its limit. The
// measuring goes on beside the worker.
func (w *worker) measureMounts(now time.Time) {
	if w.state != running || !volumes.Limited(w.pod) {
		return
	}
	if due := w.measured.Add(measurePeriod); now.Before(due) {
		w.again(due)
		return
	}
	w.measured = now
	pod := w.pod
	w.job(w.startCtx, "measure", func(ctx context.Context) func() {
		message, err := w.m.cfg.Volumes.Overfull(ctx, pod)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("volumes not measured", "error", err)
		}
		if message == "" {
			return nil
		}
		return func() {
			if w.verdict == nil {
				w.verdict = &verdict{phase: corev1.PodFailed, reason: "Evicted", message: message}
				w.event(corev1.EventTypeWarning, "Evicted", message)
			}
		}
	})
	w.again(now.Add(measurePeriod))
}
