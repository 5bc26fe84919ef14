package dynamicresources

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheduler/snapshot"
)

// containersOf returns containers: "i" ends before others start, "s" is a sidecar, "c" is a container;
// each asks for a number of cards.
func containersOf(text string) *snapshot.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for i, word := range strings.Fields(text) {
		c := corev1.Container{Name: fmt.Sprintf("%c%d", word[0], i)}
		c.Resources.Requests = corev1.ResourceList{"example.com/card": resource.MustParse(word[1:]), corev1.ResourceCPU: resource.MustParse("1")}
		if word[0] == 's' {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		if word[0] == 'c' {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		} else {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
	}
	return snapshot.NewPod(pod)
}

func TestExtendedClaimFor(t *testing.T) {
	for _, test := range []struct{ containers, requests, mappings string }{
		{"c2", "container-0-request-1:2", "c0:container-0-request-1"},
		{"c1 c2", "container-0-request-1:1 container-1-request-1:2", "c0:container-0-request-1 c1:container-1-request-1"},
		{"c0 c1", "container-1-request-1:1", "c1:container-1-request-1"},
		{"i1 c2", "container-1-request-1:2", "c1:container-1-request-1 i0:container-1-request-1"},
		{"i3 c1 c1", "container-1-request-1:1 container-2-request-1:1 container-0-request-1:1",
			"c1:container-1-request-1 c2:container-2-request-1 i0:container-1-request-1 i0:container-2-request-1 i0:container-0-request-1"},
		{"s1 i1 c0", "container-0-request-1:1 container-1-request-1:1", "s0:container-0-request-1 i1:container-1-request-1"},
		{"i1 s1 c0", "container-1-request-1:1", "s1:container-1-request-1 i0:container-1-request-1"},
		{"i2 i3 c0", "container-0-request-1:2 container-1-request-1:1", "i0:container-0-request-1 i1:container-0-request-1 i1:container-1-request-1"},
	} {
		s := newStore()
		s.OnClass(nil, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "card"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/card")}})
		claim := extendedClaimFor(s.requests(containersOf(test.containers)))
		var requests, mappings []string
		for _, r := range claim.spec.Devices.Requests {
			requests = append(requests, fmt.Sprintf("%s:%d", r.Name, r.Exactly.Count))
		}
		for _, m := range claim.mappings {
			mappings = append(mappings, m.ContainerName+":"+m.RequestName)
		}
		if got := strings.Join(requests, " "); got != test.requests {
			t.Errorf("%s: requests %s, want %s", test.containers, got, test.requests)
		}
		if got := strings.Join(mappings, " "); got != test.mappings {
			t.Errorf("%s: mappings %s, want %s", test.containers, got, test.mappings)
		}
	}
}

func TestClassFor(t *testing.T) {
	s := newStore()
	class := func(name string, at int64, resource string) *resourcev1.DeviceClass {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(at, 0)}}
		if resource != "" {
			c.Spec.ExtendedResourceName = &resource
		}
		return c
	}
	for _, c := range []*resourcev1.DeviceClass{class("old", 1, "x/y"), class("new-b", 2, "x/y"), class("new-a", 2, "x/y"), class("none", 3, "")} {
		s.OnClass(nil, c)
	}
	for resource, want := range map[corev1.ResourceName]string{
		"x/y": "new-a", "x/z": "", "cpu": "",
		"deviceclass.resource.kubernetes.io/none": "none", "deviceclass.resource.kubernetes.io/missing": "",
	} {
		if got := s.classFor(resource); got != want {
			t.Errorf("%s: class %q, want %q", resource, got, want)
		}
	}
	s.OnClass(class("new-a", 2, "x/y"), nil)
	s.OnClass(class("new-b", 2, "x/y"), class("new-b", 2, "x/z"))
	if a, b := s.classFor("x/y"), s.classFor("x/z"); a != "old" || b != "new-b" {
		t.Errorf("after changes: %q, %q", a, b)
	}
}
