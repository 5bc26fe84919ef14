package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What pods show that have ended, or were refused, because the node shuts down; clients
// match it.
const (
	reasonShutdown  = "Terminated"
	messageShutdown = "Pod was terminated in response to imminent node shutdown."
	reasonNotTaken  = "NodeShutdown"
	messageNotTaken = "Pod was rejected as the node is shutting down."
)

// refuseShutdown rejects pods while the node is shutting down.
func (m *Manager) refuseShutdown() *refusal {
	if m.cfg.ShuttingDown == nil || !m.cfg.ShuttingDown() {
		return nil
	}
	return &refusal{reasonNotTaken, messageNotTaken}
}

// Terminate ends a pod because the node shuts down; its containers get at most grace to
// stop. It blocks until nothing of the pod runs and the API has its final status, or
// until ctx ends. It is safe for concurrent use.
func (m *Manager) Terminate(ctx context.Context, pod *corev1.Pod, grace time.Duration) {
	m.mu.Lock()
	w := m.workers[pod.UID]
	m.mu.Unlock()
	if w == nil {
		return
	}
	w.post(func() { w.shutDown(grace) })
	select {
	case <-w.ended:
	case <-ctx.Done():
	}
}

// shutDown fails a pod that runs. Only the worker's goroutine may call it.
func (w *worker) shutDown(grace time.Duration) {
	if w.verdict != nil || w.state != starting && w.state != running {
		return
	}
	w.log.Info("pod ends because the node shuts down", "period", grace)
	w.verdict = &verdict{phase: corev1.PodFailed, reason: reasonShutdown, message: messageShutdown, grace: &grace, condition: disrupted(messageShutdown)}
}
