package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLogContainerSelection(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, tc := range map[string]struct {
		reason      string
		state, last corev1.ContainerState
		previous    bool
		want, err   string
	}{
		"Running":       {reason: "the one that runs", state: running, last: ended("x://old"), want: "x://now"},
		"Previous":      {reason: "the one before", state: running, last: ended("x://old"), previous: true, want: "x://old"},
		"NoPrevious":    {reason: "it never ended", state: running, previous: true, err: `previous terminated container "c" in pod "p" not found`},
		"Ended":         {reason: "the one that ended", state: ended("x://end"), want: "x://end"},
		"BackOff":       {reason: "between two runs, the last one's", state: waiting("CrashLoopBackOff"), last: ended("x://old"), want: "x://old"},
		"Creating":      {reason: "nothing ran yet", state: waiting("ContainerCreating"), err: `container "c" in pod "p" is waiting to start: ContainerCreating`},
		"Pull":          {reason: "the image is not there", state: waiting("ErrImagePull"), err: `container "c" in pod "p" is waiting to start: image can't be pulled`},
		"PullBackOff":   {reason: "nor will be soon", state: waiting("ImagePullBackOff"), err: `container "c" in pod "p" is waiting to start: trying and failing to pull image`},
		"EndedUnknown":  {reason: "it ended without a trace", state: ended(""), err: `container "c" in pod "p" is terminated`},
		"NothingKnown":  {reason: "the status is empty", err: `container "c" in pod "p" is waiting to start - no logs yet`},
		"EndedThenLast": {reason: "a lost container falls back on the one before", state: ended(""), last: ended("x://old"), want: "x://old"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Name: "c", ContainerID: "x://now", State: tc.state, LastTerminationState: tc.last}}}}
			got, err := logOwner(pod, "c", tc.previous)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got != tc.want || text != tc.err {
				t.Errorf("%s: %q, %q; want %q, %q", tc.reason, got, text, tc.want, tc.err)
			}
		})
	}
	if _, err := logOwner(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, "c", false); err == nil || err.Error() != `container "c" in pod "p" is not available` {
		t.Error(err)
	}
}
