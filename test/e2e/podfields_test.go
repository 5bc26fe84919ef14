package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// A pod whose hostname is overridden sees that name, also in its hosts file; its
// subdomain is no part of it.
func TestHostnameOverride(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: named}
spec:
  hostname: ignored
  subdomain: also-ignored
  hostnameOverride: db-0.example.org
  restartPolicy: Never
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [sh, -c, "hostname; grep example /etc/hosts"]}
`)
	pod := s.pod("named", "ends", ended)
	want := "db-0.example.org\n" + pod.Status.PodIP + "\tdb-0.example.org\n"
	if got := s.podium("logs", "named"); got != want {
		t.Errorf("the pod says %q, want %q", got, want)
	}
}

// What the runtime does not report to support is not promised: the kubelet rejects the
// pod, or does not start the container. What it reports, the container gets.
func TestRuntimeFeatures(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: strict}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [4000], supplementalGroupsPolicy: Strict}
  containers: [{name: box, image: "localhost/podium/busybox:v1", command: [id, -G]}]
---
apiVersion: v1
kind: Pod
metadata: {name: enabled}
spec:
  restartPolicy: Never
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: ["true"], volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]}
  volumes: [{name: v, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: if-possible}
spec:
  restartPolicy: Never
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: ["true"], volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible}]}
  volumes: [{name: v, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: image}
spec:
  restartPolicy: Never
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [ls, /v/bin/sh], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, image: {reference: "localhost/podium/busybox:v1"}}]
`)
	nodes, err := client.For[*corev1.Node](s.api).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("list nodes: %v", err)
	}
	status := nodes.Items[0].Status
	strict := status.Features != nil && status.Features.SupplementalGroupsPolicy != nil && *status.Features.SupplementalGroupsPolicy
	pod := s.pod("strict", "ends", ended)
	if strict {
		if got := s.podium("logs", "strict"); got != "1000 4000\n" {
			t.Errorf("the groups are %q", got)
		}
	} else {
		s.said("strict", "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node")
		if pod.Status.Reason != "SupplementalGroupsPolicyNotSupported" {
			t.Errorf("a pod that cannot have its groups is %+v", pod.Status)
		}
	}
	mode := corev1.RecursiveReadOnlyDisabled
	for _, h := range status.RuntimeHandlers {
		if h.Name == "" && h.Features != nil && h.Features.RecursiveReadOnlyMounts != nil && *h.Features.RecursiveReadOnlyMounts {
			mode = corev1.RecursiveReadOnlyEnabled
		}
	}
	want := corev1.VolumeMountStatus{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &mode}
	got := s.pod("if-possible", "ends", ended).Status.ContainerStatuses[0].VolumeMounts[0]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the mount's status (-want +got):\n%s", diff)
	}
	s.pod("enabled", "starts only where it can", func(p *corev1.Pod) bool {
		if mode == corev1.RecursiveReadOnlyEnabled {
			return ended(p)
		}
		return waits("CreateContainerConfigError")(p)
	})
	runtime := strings.TrimPrefix(status.NodeInfo.ContainerRuntimeVersion, "containerd://")
	if !strings.HasPrefix(runtime, "1.") {
		s.pod("image", "ends", ended)
		return
	}
	pod = s.pod("image", "waits", waits("CreateContainerConfigError"))
	if got, want := pod.Status.ContainerStatuses[0].State.Waiting.Message, "image volumes are not supported by containerd "+runtime+"; 2.1 or later is needed"; got != want {
		t.Errorf("the container waits because %q, want %q", got, want)
	}
}

// A tcpSocket hook fails, as upstream documents: the container is killed, and the event
// keeps the cause to the kubelet's log. A runtime without stop signals does not start a
// container that has one.
func TestHooksThatCannotRun(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: tcp}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], lifecycle: {postStart: {tcpSocket: {port: 1}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: signal}
spec:
  os: {name: linux}
  restartPolicy: Never
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [sh, -c, "trap 'exit 7' USR1; while :; do sleep 0.1; done"], lifecycle: {stopSignal: SIGUSR1}}
`)
	s.said("tcp", "FailedPostStartHook", "PostStartHook failed")
	s.pod("signal", "runs or says why not", func(p *corev1.Pod) bool {
		all := p.Status.ContainerStatuses
		switch {
		case len(all) == 0:
			return false
		case all[0].State.Waiting != nil:
			return all[0].State.Waiting.Message == "stopSignal SIGUSR1 is not supported by the runtime"
		}
		return all[0].State.Running != nil && all[0].StopSignal != nil && *all[0].StopSignal == corev1.SIGUSR1
	})
}

// Containers share what their pod has: without a limit each is limited by the pod's.
func TestPodLevelResources(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: all}
spec: {hard: {requests.memory: 100Mi, limits.memory: 100Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  terminationGracePeriodSeconds: 1
  resources: {limits: {cpu: 200m, memory: 64Mi}}
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"]}
    - {name: small, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], resources: {limits: {memory: 32Mi}, requests: {memory: 16Mi}}}
`)
	pod := s.ready("shared")
	if pod.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("its QoS class is %s", pod.Status.QOSClass)
	}
	if r := pod.Status.Resources; r == nil || r.Limits.Memory().String() != "64Mi" || r.Requests.Memory().String() != "16Mi" || r.Requests.Cpu().String() != "200m" {
		t.Errorf("its resources are %+v", r)
	}
	pid := the.containerPID(t, pod) // of the first container
	got := map[string]string{
		"memory": cgroupValue(t, pid, "memory", "memory.limit_in_bytes", "memory.max"), "cpu": cgroupValue(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max"),
		"pod's memory": cgroupValue(t, pid, "memory", "../memory.limit_in_bytes", "../memory.max"), "pod's cpu": cgroupValue(t, pid, "cpu", "../cpu.cfs_quota_us", "../cpu.max"),
	}
	want := map[string]string{"memory": "67108864", "cpu": "20000", "pod's memory": "67108864", "pod's cpu": "20000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
	quotas := client.For[*corev1.ResourceQuota](s.api)
	eventually(t, time.Minute, "the quota counts the pod's resources", func() error {
		q, err := quotas.In(s.name).Get(t.Context(), "all")
		if err != nil {
			return err
		}
		requests, limits := q.Status.Used["requests.memory"], q.Status.Used["limits.memory"]
		if requests.String() != "16Mi" || limits.String() != "64Mi" {
			return fmt.Errorf("used: %v", q.Status.Used)
		}
		return nil
	})
}

// The metrics of probes are at a path of their own.
func TestProbeMetrics(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}}
`)
	pod := s.ready("probed")
	path := "/api/v1/nodes/" + pod.Spec.NodeName + "/proxy/metrics/probes"
	text := s.podium("get", "--raw", path)
	for _, series := range []string{
		`prober_probe_total{container="box",namespace="` + s.name + `",pod="probed",pod_uid="` + string(pod.UID) + `",probe_type="Readiness",result="successful"}`,
		`prober_probe_duration_seconds_count{container="box",namespace="` + s.name + `",pod="probed",probe_type="Readiness"}`,
	} {
		if !strings.Contains(text, series) {
			t.Errorf("%s lacks %s", path, series)
		}
	}
}
