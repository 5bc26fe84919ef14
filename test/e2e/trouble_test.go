package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCrashLoopIsReported(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(box("crash", "echo the disk is on fire; exit 3"))
	pod := s.pod("crash", "backs off", waits("CrashLoopBackOff"))
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 3 || last.Reason != "Error" {
		t.Errorf("the last state is %+v, want Error with the exit code 3", last)
	}
	s.said("crash", "BackOff", "Back-off restarting failed container box in pod crash_"+s.name)
	if got := s.podium("get", "pods"); !strings.Contains(got, "CrashLoopBackOff") {
		t.Errorf("podium get pods printed\n%s", got)
	}
	if got := s.podium("logs", "crash", "--previous"); got != "the disk is on fire\n" {
		t.Errorf("podium logs --previous printed %q", got)
	}
}

func TestUnschedulableIsReported(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	for _, row := range []struct{ name, spec, why string }{
		{"cpu", `resources: {requests: {cpu: 1k}}}]}`, "Insufficient cpu"},
		{"memory", `resources: {requests: {memory: 1Pi}}}]}`, "Insufficient memory"},
		{"selector", `}], nodeSelector: {disk: gold}}`, "node(s) didn't match Pod's node affinity/selector"},
	} {
		s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: ` + row.name + `}
spec: {containers: [{name: box, image: localhost/podium/busybox:v1, ` + row.spec)
		event := s.said(row.name, "FailedScheduling", "0/1 nodes are available: 1 "+row.why)
		t.Logf("%s: %s", row.name, event.Message)
	}
}

// A pod waits for missing objects, reports which ones, and starts when they appear.
func TestMissingConfigMap(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: by-env}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: by-volume}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      volumeMounts: [{name: settings, mountPath: /settings}]
  volumes: [{name: settings, configMap: {name: settings}}]
`)
	pod := s.pod("by-env", "waits", waits("CreateContainerConfigError"))
	if got, want := pod.Status.ContainerStatuses[0].State.Waiting.Message, `configmap "settings" not found`; got != want {
		t.Errorf("it waits with the message %q, want %q", got, want)
	}
	s.said("by-volume", "FailedMount", `MountVolume.SetUp failed for volume "settings" : configmap "settings" not found`)
	s.pod("by-volume", "waits", waits("ContainerCreating"))

	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}}
	if _, err := in[*corev1.ConfigMap](s).Create(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	s.ready("by-env")
	s.ready("by-volume")
	if got := s.exec("by-env", "echo $COLOUR"); got != "blue" {
		t.Errorf("the variable is %q", got)
	}
	if got := s.exec("by-volume", "cat /settings/colour"); got != "blue" {
		t.Errorf("the file holds %q", got)
	}
}

func TestImagePullErrors(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: absent}
spec: {containers: [{name: box, image: "localhost/podium/absent:v1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec: {containers: [{name: box, image: "localhost/podium/absent:v1", imagePullPolicy: Never}]}
---
apiVersion: v1
kind: Pod
metadata: {name: invalid}
spec: {containers: [{name: box, image: "Upper:v1"}]}
`)
	s.pod("absent", "backs off", waits("ImagePullBackOff"))
	s.said("absent", "Failed", `Failed to pull image "localhost/podium/absent:v1"`)
	s.said("absent", "BackOff", `Back-off pulling image "localhost/podium/absent:v1"`)
	s.pod("never", "waits", waits("ErrImageNeverPull"))
	s.said("never", "ErrImageNeverPull", `Container image "localhost/podium/absent:v1" is not present with pull policy of Never`)
	s.pod("invalid", "waits", waits("InvalidImageName"))
}
