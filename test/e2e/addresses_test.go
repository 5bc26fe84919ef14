package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// Rolling updates in a range so small that new pods get the addresses of deleted ones lose no
// request, and no new pod is unreachable because of a stale neighbour entry.
func TestReusedAddresses(t *testing.T) {
	s := newSpace(t)
	s.apply(webOf(3) + "\n---\n" + box("client", "sleep 3600"))
	from := s.ready("client")
	s.rolledOut("web")
	reserve(t, from.Spec.NodeName, 3)
	fromNode(t, false).answers(t, s.url("web"), 3)
	for i := range 6 {
		s.heard(fmt.Sprintf("plain-%d", i), from)
	}
	all := startLoads(t, s.url("web"), from)
	all.more(t, 20)

	used := map[string]map[string]bool{} // pods by address
	for turn := range 4 {
		for _, p := range s.pods("app=web") {
			if used[p.Status.PodIP] == nil {
				used[p.Status.PodIP] = map[string]bool{}
			}
			used[p.Status.PodIP][p.Name] = true
		}
		s.patch("web", fmt.Sprintf(`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}},"template":{"metadata":{"annotations":{"turn":"%d"}}}}}`, turn))
		s.rolledOut("web")
		all.more(t, 20)
	}
	all.lostNone(t)
	reused := 0
	for _, pods := range used {
		reused += len(pods) - 1
	}
	if t.Logf("%d pods got the address of a pod before them", reused); reused < 6 {
		t.Errorf("only %d of 12 pods got the address of a pod before them", reused)
	}
}

// heard runs a pod without a readiness probe, which receives no traffic before the test sends
// some: the node and another pod reach it before a stale neighbour entry could have been
// replaced, which takes at least 8 s.
func (s *space) heard(name string, from *corev1.Pod) {
	s.Helper()
	s.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: web, image: 'localhost/podium/web:v1'}]}\n")
	pod := s.ready(name)
	for _, v := range []*visitor{fromNode(s.T, false), fromPod(s.T, from, false)} {
		v.http.Timeout = 5 * time.Second
		eventually(s.T, 5*time.Second, fmt.Sprintf("%s at %s answers the %s", name, pod.Status.PodIP, v.name), func() error {
			_, err := v.get("http://" + pod.Status.PodIP + ":8080/")
			return err
		})
	}
	if err := in[*corev1.Pod](s).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.goes(pod)
}

// reserve leaves that many free addresses in a node's range until the test ends. It reserves
// the others with files like those of the host-local plugin.
func reserve(t *testing.T, node string, free int) {
	t.Helper()
	n, err := client.For[*corev1.Node](the.client(t)).Get(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	pods := netip.MustParsePrefix(n.Spec.PodCIDR)
	dir := filepath.Join(the.dir, "cni-addresses", "podium0")
	for ip := pods.Addr().Next().Next(); pods.Contains(ip.Next()); ip = ip.Next() {
		file := filepath.Join(dir, ip.String())
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if os.IsExist(err) {
			continue
		}
		if free > 0 && err == nil {
			free--
			f.Close()
			os.Remove(file)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(file) })
		if _, err := f.WriteString("reserved-" + ip.String() + "\r\neth0"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}
