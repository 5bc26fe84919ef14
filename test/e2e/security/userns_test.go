package security

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// Root in a pod with hostUsers: false is a user that the node uses for nothing else; the pod's
// files belong to it nevertheless. A node without support refuses the pod.
func TestUserNamespaces(t *testing.T) {
	ns, pods := space(t), client.For[*corev1.Pod](admin)
	_, err := client.For[*corev1.Secret](admin).In(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"key": "value"}})
	check(t, err)
	no, group := false, int64(1234)
	names := []string{"a", "b"}
	for _, name := range names {
		p := shellPod(name, `{ cat /proc/self/uid_map /proc/self/gid_map && [ "$(id -u)" = 0 ] && [ "$(cat /s/key)" = value ] &&
			[ "$(stat -Lc %u:%g /s/key)" = 0:1234 ] && [ "$(stat -c %u:%g /etc/hosts)" = 0:0 ] && cat /etc/hosts >/dev/null &&
			echo x > /v/file && [ "$(stat -c %u:%g /v/file)" = 0:1234 ] && chown 7:8 /v/file && [ "$(stat -c %u:%g /v/file)" = 7:8 ] &&
			echo x > /mine && ! mknod /dev/evil c 1 1; } > /dev/termination-log 2>&1`)
		p.Spec.HostUsers = &no
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "s", MountPath: "/s"}, {Name: "v", MountPath: "/v"}}
		_, err := pods.In(ns).Create(t.Context(), p)
		check(t, err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		p := podReaches(t, ns, name, "ends", func(s *corev1.PodStatus) bool {
			return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
		})
		if !supportsUserNS(t, p.Spec.NodeName) {
			t.Logf("the runtime has no user namespaces: %s is %s, %s", name, p.Status.Phase, p.Status.Message)
			if p.Status.Reason != "UserNamespacesNotSupported" {
				t.Errorf("a node without user namespaces: %+v", p.Status)
			}
			continue
		}
		end := p.Status.ContainerStatuses[0].State.Terminated
		if end == nil || end.ExitCode != 0 {
			t.Errorf("%s: %+v", name, end)
			continue
		}
		ids := strings.Fields(end.Message) // of users, then of groups: in the pod, on the node, count
		if len(ids) < 6 || ids[0] != "0" || ids[1] == "0" || ids[2] != "65536" || ids[1] != ids[4] || seen[ids[1]] {
			t.Errorf("%s: ids are mapped as %q", name, ids)
			continue
		}
		t.Logf("%s has the node's ids from %s on", name, ids[1])
		seen[ids[1]] = true
	}
}

func supportsUserNS(t *testing.T, node string) bool {
	t.Helper()
	n, err := client.For[*corev1.Node](admin).Get(t.Context(), node)
	check(t, err)
	for _, h := range n.Status.RuntimeHandlers {
		if h.Name == "" && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces {
			return true
		}
	}
	return false
}
