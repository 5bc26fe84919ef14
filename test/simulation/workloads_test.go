package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

// workloads is a story of several parts that run at the same time. The journal checks the
// invariant of each part at every write.
func workloads(ctx context.Context, w *world) {
	create(ctx, w, settings("default"))
	cards := w.cards(ctx)
	var parts sync.WaitGroup
	for _, part := range []func(context.Context, *world){indexedJobs, cron, agents, identities, limited, drain, preemption, cards} {
		parts.Go(func() { part(ctx, w) })
	}
	parts.Wait()
}

// await waits, as insist does, until done returns true.
func (w *world) await(ctx context.Context, what string, done func() bool) {
	w.insist(ctx, what, func() error {
		if !done() {
			return errors.New("it has not happened")
		}
		return nil
	})
}

// alive reports whether a pod has neither ended nor is being deleted.
func alive(p *corev1.Pod) bool { return p != nil && !final(p) && p.DeletionTimestamp == nil }

func ready(p *corev1.Pod) bool { return conditions.IsTrue(p.Status.Conditions, corev1.PodReady) }

// ran counts the live and ready pods of an app in the namespace default.
func (w *world) ran(ctx context.Context, app string) (n int) {
	for _, p := range list[*corev1.Pod](ctx, w) {
		if p.Namespace == "default" && p.Labels["app"] == app && alive(p) && ready(p) {
			n++
		}
	}
	return n
}

// someTime waits for up to most, as long as the plan says.
func (w *world) someTime(ctx context.Context, who string, most time.Duration) {
	pause(ctx, time.Duration(w.plan.draw("story of", who).Int64N(int64(most))))
}

// controller returns the UID of the controller of an object, "" if it has none.
func controller(obj metav1.Object) string {
	if ref := metav1.GetControllerOf(obj); ref != nil {
		return string(ref.UID)
	}
	return ""
}
