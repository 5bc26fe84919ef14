package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
)

func pod(name string, priority int32) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority}}
}

// popped lists the pods that Pop returns within a time, each with the second at which it was
// returned.
func popped(t *testing.T, q *Queue, within time.Duration, then func(*Attempt)) string {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var out []string
	for a := q.Pop(ctx); a != nil; a = q.Pop(ctx) {
		out = append(out, fmt.Sprintf("%s@%v", a.Pod.Name, time.Since(began).Round(time.Second)))
		if then != nil {
			then(a)
		}
	}
	return strings.Join(out, " ")
}

func TestStories(t *testing.T) {
	const cpu, taint = framework.PodGone, framework.NodeTaints
	for _, test := range []struct {
		name, reason string
		story        func(t *testing.T, q *Queue) string
		want         string
	}{
		{"order", "priority first, then first in, first out", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			q.Add(pod("b", 5), false)
			q.Add(pod("c", 5), false)
			q.Add(pod("d", -1), false)
			return popped(t, q, time.Minute, nil)
		}, "b@0s c@0s a@0s d@0s"},
		{"a new priority", "an update reorders", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			q.Add(pod("b", 0), false)
			q.Add(pod("b", 1), false)
			return popped(t, q, time.Minute, nil)
		}, "b@0s a@0s"},
		{"errors back off", "1, 2, 4, 8, 10, 10 seconds", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			return popped(t, q, 36*time.Second, func(a *Attempt) { q.Fail(a, 0) })
		}, "a@0s a@1s a@3s a@7s a@15s a@25s a@35s"},
		{"a pod that fits nowhere", "waits for an event that helps, not for others", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			time.AfterFunc(20*time.Second, func() { q.Wake(taint) })
			time.AfterFunc(40*time.Second, func() { q.Wake(cpu) })
			return popped(t, q, time.Minute, func(a *Attempt) { q.Fail(a, cpu) })
		}, "a@0s a@40s"},
		{"an event during the back-off", "the pod is tried when that is over", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			time.AfterFunc(200*time.Millisecond, func() { q.Wake(cpu) })
			return popped(t, q, time.Minute, func(a *Attempt) { q.Fail(a, cpu) })
		}, "a@0s a@1s"},
		{"an event during the attempt", "it is not lost", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			return popped(t, q, time.Minute, func(a *Attempt) {
				if a.Number == 1 {
					q.Wake(cpu)
				}
				q.Fail(a, cpu)
			})
		}, "a@0s a@1s"},
		{"an event of no help during the attempt", "the pod waits", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			return popped(t, q, time.Minute, func(a *Attempt) { q.Wake(taint); q.Fail(a, cpu) })
		}, "a@0s"},
		{"more events than are remembered", "then any may have been the one", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			return popped(t, q, time.Minute, func(a *Attempt) {
				for range 300 {
					if a.Number == 1 {
						q.Wake(taint)
					}
				}
				q.Fail(a, cpu)
			})
		}, "a@0s a@1s"},
		{"a change of the pod during the attempt", "it looked at the old one", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			return popped(t, q, time.Minute, func(a *Attempt) {
				if a.Number == 1 {
					q.Add(pod("a", 0), true)
				}
				q.Fail(a, cpu)
			})
		}, "a@0s a@1s"},
		{"a change of a waiting pod", "one that may help wakes it, another does not", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			time.AfterFunc(10*time.Second, func() { q.Add(pod("a", 0), false) })
			time.AfterFunc(20*time.Second, func() { q.Add(pod("a", 0), true) })
			return popped(t, q, time.Minute, func(a *Attempt) { q.Fail(a, cpu) })
		}, "a@0s a@20s"},
		{"no event at all", "after five minutes it is tried all the same", func(t *testing.T, q *Queue) string {
			q.Add(pod("a", 0), false)
			return popped(t, q, 11*time.Minute, func(a *Attempt) { q.Fail(a, cpu) })
		}, "a@0s a@5m0s a@10m0s"},
		{"removed", "wherever it is, it does not come back", func(t *testing.T, q *Queue) string {
			for _, name := range []string{"active", "backoff", "parked", "under-way"} {
				q.Add(pod(name, 0), false)
			}
			q.Remove("active")
			return popped(t, q, 10*time.Minute, func(a *Attempt) {
				switch a.Pod.Name {
				case "backoff":
					q.Fail(a, 0)
				case "parked":
					q.Fail(a, cpu)
				case "under-way":
					q.Remove("under-way")
					q.Fail(a, 0)
				}
				q.Remove(a.Pod.UID)
			})
		}, "backoff@0s parked@0s under-way@0s"},
		{"waking many", "they come in the order in which they first came", func(t *testing.T, q *Queue) string {
			for i := range 5 {
				q.Add(pod(fmt.Sprint(i), 0), false)
			}
			time.AfterFunc(30*time.Second, func() { q.Wake(cpu | taint) })
			return popped(t, q, time.Minute, func(a *Attempt) {
				if a.Number == 1 {
					q.Fail(a, []framework.Event{cpu, taint, cpu | taint}[len(a.Pod.Name)%3])
				}
			})
		}, "0@0s 1@0s 2@0s 3@0s 4@0s 0@30s 1@30s 2@30s 3@30s 4@30s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := test.story(t, New(Config{})); got != test.want {
					t.Errorf("%s:\n got %s\nwant %s", test.reason, got, test.want)
				}
			})
		})
	}
}

func BenchmarkWake(b *testing.B) {
	for _, size := range []int{100, 10000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			q := New(Config{InitialBackoff: time.Nanosecond, MaxBackoff: time.Nanosecond})
			for i := range size {
				q.Add(pod(fmt.Sprint(i), 0), false)
			}
			for b.Loop() {
				for range size {
					q.Fail(q.Pop(b.Context()), framework.PodGone)
				}
				q.Wake(framework.PodGone)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/pod")
		})
	}
}
