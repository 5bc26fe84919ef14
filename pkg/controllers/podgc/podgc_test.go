package podgc

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	now := time.Now()
	pod := func(name, node string, phase corev1.PodPhase, deleted bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
		if deleted {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return p
	}
	old := func(p *corev1.Pod, age time.Duration) *corev1.Pod {
		p.CreationTimestamp = metav1.Time{Time: now.Add(-age)}
		return p
	}
	evicted := pod("evicted", "here", corev1.PodFailed, false)
	evicted.Status.Reason = "Evicted"
	broken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}}}
	nodes := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "here"}}, broken}
	p := decide([]*corev1.Pod{
		pod("runs", "here", corev1.PodRunning, false),
		pod("ends", "here", corev1.PodRunning, true),
		pod("waits", "", corev1.PodPending, false),
		pod("never-bound", "", corev1.PodPending, true),
		pod("lost", "gone", corev1.PodRunning, false),
		pod("out-of-service", "broken", corev1.PodRunning, true),
		pod("patient", "broken", corev1.PodRunning, false),
		old(pod("ended-long-ago", "here", corev1.PodSucceeded, false), 3*time.Hour),
		old(pod("ended", "here", corev1.PodSucceeded, false), time.Hour),
		evicted,
	}, nodes, 1)
	var got []string
	for _, v := range p.Delete {
		got = append(got, v.pod.Name+" "+v.reason)
	}
	if diff := cmp.Diff([]string{"never-bound unscheduled", "out-of-service out-of-service", "evicted terminated", "ended-long-ago terminated"}, got); diff != "" {
		t.Error(diff)
	}
	if got := fmt.Sprint(p.Missing, p.On["gone"][0].pod.Name, p.On["gone"][0].message); got != "[gone]lostPodGC: node no longer exists" {
		t.Error(got)
	}
}
