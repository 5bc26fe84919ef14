package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// hugePages is where the kernel counts pages of 2 MiB.
const hugePages = "/sys/kernel/mm/hugepages/hugepages-2048kB/"

func hugePageCount(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(hugePages + file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// huge reports whether cgroups bound huge pages on this host.
func huge() bool {
	_, v1 := os.Stat("/sys/fs/cgroup/hugetlb")
	v2, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return v1 == nil || err == nil && slices.Contains(strings.Fields(string(v2)), "hugetlb")
}

// A pod gets the huge pages that it asks for, by a volume of them; another one waits if there are
// too few.
func TestHugePages(t *testing.T) {
	if _, err := os.Stat(hugePages); err != nil {
		t.Skip("the kernel has no huge pages of 2 MiB:", err)
	}
	before := hugePageCount(t, "nr_hugepages")
	set := func(n int) {
		if err := os.WriteFile(hugePages+"nr_hugepages", []byte(strconv.Itoa(n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	set(before + 8)
	restart := func() {
		the.kill(t, "kubelet")
		if err := the.create(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		set(before)
		restart()
	})
	if got := hugePageCount(t, "nr_hugepages"); got < before+8 {
		t.Skipf("the kernel reserves %d of %d huge pages: its memory is fragmented", got, before+8)
	}
	s := newSpace(t)
	restart() // the kubelet counts huge pages when it starts
	eventually(t, time.Minute, "the node has huge pages", func() error {
		n, err := client.For[*corev1.Node](s.api).Get(t.Context(), "node-a")
		if err != nil {
			return err
		}
		huge, memory := n.Status.Allocatable["hugepages-2Mi"], n.Status.Allocatable.Memory()
		if huge.Value() < 16<<20 || memory.Value()+huge.Value() > n.Status.Capacity.Memory().Value() {
			return fmt.Errorf("allocatable: %s of huge pages, %s of %s of memory", huge.String(), memory, n.Status.Capacity.Memory())
		}
		return nil
	})
	pod := func(name, amount string) string {
		return podWith(name, fmt.Sprintf(`resources: {limits: {hugepages-2Mi: %s, memory: 64Mi}}, volumeMounts: [{name: huge, mountPath: /huge}]`, amount),
			`volumes: [{name: huge, emptyDir: {medium: HugePages}}]`)
	}
	s.apply(pod("fits", "8Mi"))
	s.pod("fits", "runs", running)
	free := hugePageCount(t, "free_hugepages")
	s.exec("fits", "fallocate -l 4194304 /huge/file")
	if got := hugePageCount(t, "free_hugepages"); got != free-2 {
		t.Errorf("%d of %d huge pages are free after two were used", got, free)
	}
	s.apply(pod("large", "1Ti"))
	s.said("large", "FailedScheduling", "Insufficient hugepages-2Mi")
	remove := func(name string) {
		s.deleted(name, func() error { return in[*corev1.Pod](s).Delete(t.Context(), name, metav1.DeleteOptions{}) })
	}
	remove("fits")

	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: shares}
spec:
  terminationGracePeriodSeconds: 1
  resources: {limits: {hugepages-2Mi: 4Mi, memory: 64Mi, cpu: 100m}}
  volumes: [{name: huge, emptyDir: {medium: HugePages}}]
  containers:
    - {name: one, image: localhost/podium/busybox:v1, command: [sleep, "3600"], volumeMounts: [{name: huge, mountPath: /huge}]}
    - {name: other, image: localhost/podium/busybox:v1, command: [sleep, "3600"], volumeMounts: [{name: huge, mountPath: /huge}]}
`)
	s.pod("shares", "runs", running)
	s.podium("exec", "shares", "-c", "one", "--", "fallocate", "-l", "2097152", "/huge/one")
	t.Run("bound", func(t *testing.T) {
		if !huge() {
			t.Skip("the host has no hugetlb cgroup controller: nothing bounds huge pages")
		}
		if out, err := the.try(t.Context(), "", the.bin("podium"), "-n", s.name, "exec", "shares", "-c", "other", "--", "fallocate", "-l", "4194304", "/huge/other"); err == nil {
			t.Errorf("the pod's containers have more huge pages than the pod: %s", out)
		}
	})
	remove("shares")
	eventually(t, time.Minute, "the huge pages are free", func() error {
		if got := hugePageCount(t, "free_hugepages"); got != free {
			return fmt.Errorf("%d of %d", got, free)
		}
		return nil
	})
}
