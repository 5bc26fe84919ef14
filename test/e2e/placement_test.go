package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/conditions"
	"podium/pkg/kubelet/hardware"
)

// TestExclusiveCPUs restarts the kubelet with the policies static of the CPU manager and
// the memory manager. A container of
// a Guaranteed pod that requests one CPU gets it for itself, without a quota, and keeps it when
// the kubelet is killed; the containers beside it run on the other CPUs, and on all again when
// it is deleted.
func TestExclusiveCPUs(t *testing.T) {
	machine, err := hardware.Discover(hardware.Kernel())
	if err != nil {
		t.Fatal(err)
	}
	all := machine.All()
	if all.Size() < 2 {
		t.Skip("needs two CPUs")
	}
	dir := filepath.Join(the.dir, "kubelet")
	state, memory := filepath.Join(dir, "cpu_manager_state"), filepath.Join(dir, "memory_manager_state")
	static := []string{
		"--extra-config", "kubelet.cpu-manager-policy=static", "--extra-config", "kubelet.kube-reserved=cpu=500m",
		"--extra-config", "kubelet.memory-manager-policy=Static", "--extra-config", fmt.Sprintf("kubelet.reserved-memory=%d:memory=100Mi", machine.NodeIDs()[0]),
	}
	the.kubeletWith(t, static...)
	t.Cleanup(func() {
		os.Remove(state)
		os.Remove(memory)
		the.kubeletWith(t)
	})

	s := newSpace(t)
	s.apply(pinned("beside", "{requests: {cpu: 10m}}"))
	s.ready("beside")
	s.runsOn("beside", all.String())

	s.apply(pinned("own", "{limits: {cpu: 1, memory: 16Mi}}"))
	before := s.ready("own")
	own, err := hardware.ParseList(s.cpus("own"))
	if err != nil || own.Size() != 1 {
		t.Fatalf("the pod runs on %v, %v; want one CPU", own, err)
	}
	s.runsOn("beside", all.Difference(own).String())
	if quota := s.exec("own", "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cat /sys/fs/cgroup/cpu.max"); quota != "-1" && !strings.HasPrefix(quota, "max ") {
		t.Errorf("the container has the quota %s", quota)
	}

	the.kubeletWith(t, static...)
	s.runsOn("beside", all.Difference(own).String())
	s.runsOn("own", own.String())
	after := s.ready("own")
	if diff := cmp.Diff(before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID); diff != "" {
		t.Error("the container was replaced:", diff)
	}

	patch := `{"spec":{"containers":[{"name":"box","resources":{"requests":{"cpu":"500m"},"limits":{"cpu":"500m"}}}]}}`
	if _, err := in[*corev1.Pod](s).Patch(t.Context(), "own", types.StrategicMergePatchType, []byte(patch), "resize"); err != nil {
		t.Fatal(err)
	}
	s.pod("own", "cannot be resized", func(p *corev1.Pod) bool {
		c := conditions.Find(p.Status.Conditions, corev1.PodResizePending)
		return c != nil && c.Reason == corev1.PodReasonInfeasible && c.Message == `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	})

	if text, err := os.ReadFile(memory); err != nil || !strings.Contains(string(text), string(after.UID)) {
		t.Errorf("the memory of the pod is not in the state %s, %v", text, err)
	}
	s.podium("delete", "pod", "own")
	s.runsOn("beside", all.String())
	for _, file := range []string{state, memory} {
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "entries") {
			t.Errorf("the state is %s, %v", text, err)
		}
	}
}

// kubeletWith kills the kubelet and starts it with more flags.
func (c *cluster) kubeletWith(t *testing.T, flags ...string) {
	t.Helper()
	c.kill(t, "kubelet")
	if err := c.create(context.Background(), flags...); err != nil {
		t.Fatal(err)
	}
}

// pinned is a pod with the resources.
func pinned(name, resources string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: box, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], resources: %s}]
`, name, resources)
}

// cpus returns the CPUs on which a pod's processes may run.
func (s *space) cpus(pod string) string {
	s.Helper()
	_, list, _ := strings.Cut(s.exec(pod, "grep Cpus_allowed_list /proc/self/status"), ":")
	return strings.TrimSpace(list)
}

// runsOn waits until a pod's processes run on the CPUs.
func (s *space) runsOn(pod, cpus string) {
	s.Helper()
	eventually(s.T, 15*time.Second, pod+" runs on CPU "+cpus, func() error {
		if got := s.cpus(pod); got != cpus {
			return fmt.Errorf("it runs on %s", got)
		}
		return nil
	})
}
