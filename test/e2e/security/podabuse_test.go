package security

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// shellPod returns a pod that runs a script once.
func shellPod(name, script string) *corev1.Pod {
	p := pod("", name, "")
	p.Spec.Volumes, p.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
	p.Spec.Containers[0].Command = []string{"sh", "-c", script}
	return p
}

// podReaches waits until ok returns true for the pod's status.
func podReaches(t *testing.T, ns, name, what string, ok func(*corev1.PodStatus) bool) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	eventually(t, "pod "+name+" "+what, func() error {
		p, err := client.For[*corev1.Pod](admin).In(ns).Get(t.Context(), name)
		if err != nil {
			return err
		}
		last = p
		if !ok(&p.Status) {
			return fmt.Errorf("it is %s, reason %q, message %q, containers %+v", p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses)
		}
		return nil
	})
	return last
}

func nodeCondition(t *testing.T, node string, kind corev1.NodeConditionType) corev1.ConditionStatus {
	t.Helper()
	n, err := client.For[*corev1.Node](admin).Get(t.Context(), node)
	check(t, err)
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// podPIDs returns the directory of the pod's cgroup in the hierarchy of the pids controller.
func podPIDs(t *testing.T, uid types.UID) string {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		root = filepath.Join(root, "pids")
	}
	if _, err := os.Stat(root); err != nil {
		t.Skip("this host has no pids cgroup controller")
	}
	for _, name := range []string{"pod" + string(uid), "pod" + strings.ReplaceAll(string(uid), "-", "_") + ".slice"} {
		for _, depth := range []string{"*/", "*/*/", "*/*/*/", "*/*/*/*/"} {
			found, err := filepath.Glob(filepath.Join(root, depth, "*"+name))
			check(t, err)
			if len(found) > 0 {
				return found[0]
			}
		}
	}
	t.Fatalf("pod %s has no cgroup with the pids controller below %s", uid, root)
	return ""
}

func pidsMax(t *testing.T, dir string) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pids.max"))
	check(t, err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatalf("%s is not bounded: pids.max is %s", dir, text)
	}
	return n
}

// forksRefused returns nil if the kernel has refused a fork in the cgroup or below it: kernels
// differ in the level at which they count.
func forksRefused(dir string) error {
	refused := errNotYet
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "pids.events" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && !strings.HasPrefix(string(text), "max 0") {
			refused = nil
		}
		return err
	})
	return errors.Join(err, refused)
}

// A pod that forks without end reaches its own limit: the node stays ready and other pods start.
func TestForkBomb(t *testing.T) {
	ns, pods := space(t), client.For[*corev1.Pod](admin)
	bounded := func(name string) (dir, node string) {
		t.Helper()
		p := podReaches(t, ns, name, "runs", func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodRunning })
		dir = podPIDs(t, p.UID)
		if one, all := pidsMax(t, dir), pidsMax(t, filepath.Join(dir, "..", "..")); one > 4096 || one >= all {
			t.Fatalf("the pod may have %d processes, all pods %d", one, all)
		}
		return dir, p.Spec.NodeName
	}
	_, err := pods.In(ns).Create(t.Context(), shellPod("calm", "exec sleep 3600"))
	check(t, err)
	bounded("calm") // without a limit the next pod would exhaust this machine

	bomb := shellPod("bomb", "b() { b | b & }; b & exec sleep 3600")
	bomb.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")} // keeps enough CPU for the node's other processes
	_, err = pods.In(ns).Create(t.Context(), bomb)
	check(t, err)
	dir, node := bounded("bomb")
	eventually(t, "the bomb runs into its bound", func() error { return forksRefused(dir) })
	_, err = pods.In(ns).Create(t.Context(), shellPod("other", "sleep 1 & wait"))
	check(t, err)
	podReaches(t, ns, "other", "succeeds beside the bomb", func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodSucceeded })
	if ready := nodeCondition(t, node, corev1.NodeReady); ready != corev1.ConditionTrue {
		t.Errorf("the node is Ready=%s", ready)
	}
	if pressure := nodeCondition(t, node, corev1.NodePIDPressure); pressure != corev1.ConditionFalse {
		t.Errorf("one pod brings the node to PIDPressure=%s", pressure)
	}
	check(t, pods.In(ns).Delete(t.Context(), "bomb", metav1.DeleteOptions{}))
	eventually(t, "the bomb is gone", func() error {
		if _, err := os.Stat(dir); err == nil {
			return errNotYet
		}
		return nil
	})
}

// A pod that uses more of the node's disk than its limit is evicted, wherever it writes.
func TestEphemeralStorageLimit(t *testing.T) {
	ns, pods := space(t), client.For[*corev1.Pod](admin)
	const total = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "
	size := resource.MustParse("10Mi")
	for _, c := range []struct {
		name, script, want string
		change             func(*corev1.PodSpec)
	}{
		{name: "layer", script: "dd if=/dev/zero of=/big bs=1M count=60; sleep 3600", want: total},
		{name: "logs", script: "yes 0123456789012345678901234567890123456789 | head -c 30000000; sleep 3600", want: total},
		{name: "hosts", script: "dd if=/dev/zero of=/etc/hosts bs=1M count=60; sleep 3600", want: total},
		{name: "volume", script: "dd if=/dev/zero of=/v/big bs=1M count=60; sleep 3600", want: total},
		{name: "sized-volume", script: "dd if=/dev/zero of=/v/big bs=1M count=60; sleep 3600", want: `Usage of EmptyDir volume "v" exceeds the limit "10Mi". `, change: func(s *corev1.PodSpec) {
			s.Volumes[0].EmptyDir.SizeLimit = &size
			s.Containers[0].Resources = corev1.ResourceRequirements{}
		}},
		{name: "sidecar", script: "dd if=/dev/zero of=/big bs=1M count=60; sleep 3600", want: `Container c exceeded its local ephemeral storage limit "10Mi". `, change: func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "d", Image: s.Containers[0].Image, Command: []string{"sleep", "3600"}, Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("200Mi")},
			}})
		}},
		{name: "modest", script: "dd if=/dev/zero of=/small bs=1M count=5; sleep 3600"},
	} {
		p := shellPod(c.name, c.script)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: size}
		if c.change != nil {
			c.change(&p.Spec)
		}
		_, err := pods.In(ns).Create(t.Context(), p)
		check(t, err)
		if c.want != "" {
			defer func() {
				s := podReaches(t, ns, c.name, "is evicted", func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodFailed }).Status
				if s.Reason != "Evicted" || s.Message != c.want {
					t.Errorf("%s: reason %q, message %q; want %q", c.name, s.Reason, s.Message, c.want)
				}
			}()
		}
	}
	podReaches(t, ns, "layer", "is evicted", func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodFailed })
	if p, err := pods.In(ns).Get(t.Context(), "modest"); err != nil || p.Status.Phase != corev1.PodRunning {
		t.Errorf("a pod below its limit is %+v, %v", p.Status, err)
	}
}

// A container cannot forge packets unless it is given the capability; ping works nevertheless.
func TestRawSocketsAreRefused(t *testing.T) {
	ns, pods := space(t), client.For[*corev1.Pod](admin)
	const (
		gateway = "gw=$(ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'); "
		arp     = "arping -c 1 -w 5 -I eth0 $gw"
		raw     = "traceroute -I -m 1 -q 1 -w 2 127.0.0.1"
		ping    = pingEnv + "=127.0.0.1 /ping && " + pingEnv + "=$gw /ping"
	)
	self, err := os.Executable() // in the pod it is the program that pings
	check(t, err)
	user, no := int64(65534), false
	for _, c := range []struct {
		name, script string
		security     *corev1.SecurityContext
	}{
		{name: "refused", script: gateway + "! " + arp + " && ! " + raw + " && " + ping},
		{name: "refused-nobody", script: gateway + "! " + arp + " && ! " + raw + " && " + ping, security: &corev1.SecurityContext{
			RunAsUser: &user, RunAsGroup: &user, AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}},
		{name: "added", script: gateway + arp + " && " + raw + " && " + ping, security: &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}},
		}},
	} {
		p := shellPod(c.name, "{ "+c.script+"; } > /dev/termination-log 2>&1")
		p.Spec.Containers[0].SecurityContext = c.security
		p.Spec.Volumes = []corev1.Volume{{Name: "ping", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: self}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "ping", MountPath: "/ping", ReadOnly: true}}
		if c.security != nil && c.security.RunAsUser != nil {
			p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
			p.Spec.Containers[0].Command = []string{"sh", "-c", c.script}
		}
		_, err := pods.In(ns).Create(t.Context(), p)
		check(t, err)
	}
	for _, name := range []string{"refused", "refused-nobody", "added"} {
		p := podReaches(t, ns, name, "ends", func(s *corev1.PodStatus) bool {
			return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
		})
		if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 {
			t.Errorf("%s: %+v", name, end)
		}
	}
}
