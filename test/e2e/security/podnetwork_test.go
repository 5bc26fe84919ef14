package security

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// TestPodSendsFromItsOwnAddressOnly: the node drops what a pod with NET_ADMIN sends from an
// address that is not its own.
func TestPodSendsFromItsOwnAddressOnly(t *testing.T) {
	ns := space(t)
	forger := networkPod(t, ns, "forger", box, "NET_ADMIN", "NET_RAW")
	other := networkPod(t, ns, "other", box)
	run := func(words ...string) string {
		out, err := inNetworkPod(t, ns, forger.Name, words...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := run("sh", "-c", "ping -c 1 -W 5 "+other.Status.PodIP+" | grep -c 'bytes from'"); strings.TrimSpace(got) != "1" {
		t.Fatalf("an honest ping has %q answers", got)
	}
	run("ip", "addr", "add", "203.0.113.9/32", "dev", "lo")
	before := dropped(t)
	run("sh", "-c", "ping -c 2 -W 1 -I 203.0.113.9 "+other.Status.PodIP+" || true")
	if now := dropped(t); now < before+2 {
		t.Errorf("of 2 packets with a forged source %d were dropped", now-before)
	}
}

// dropped returns the number of packets with a forged source that the node has dropped. The test
// runs in the node's network.
func dropped(t *testing.T) int {
	t.Helper()
	out, err := exec.Command("iptables", "-t", "raw", "-nvxL", "KUBE-PODS-SOURCE").CombinedOutput()
	if err != nil {
		t.Fatalf("the node checks no source addresses: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 2 && words[2] == "DROP" {
			n, err := strconv.Atoi(words[0])
			check(t, err)
			return n
		}
	}
	t.Fatalf("no rule drops forged packets:\n%s", out)
	return 0
}

// TestMetadataAddressIsClosedToPods: pods' connections to the addresses at which clouds serve a
// node's credentials are refused at once.
func TestMetadataAddressIsClosedToPods(t *testing.T) {
	ns := space(t)
	pod := networkPod(t, ns, "tenant", corev1.Container{Image: "localhost/podium/web:v1"})
	out, err := inNetworkPod(t, ns, pod.Name, "/web", "get", "http://169.254.169.254/latest/meta-data/")
	if err == nil || !strings.Contains(err.Error()+out, "refused") {
		t.Errorf("the metadata address: %q, %v: want it refused", out, err)
	}
}

// box is an idle container to run commands in.
var box = corev1.Container{Image: "localhost/podium/busybox:v1", Command: []string{"sleep", "1000"}}

func networkPod(t *testing.T, ns, name string, c corev1.Container, capabilities ...corev1.Capability) *corev1.Pod {
	t.Helper()
	c.Name, c.ImagePullPolicy = "c", corev1.PullNever
	c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: capabilities}}
	pods := client.For[*corev1.Pod](admin).In(ns)
	grace := int64(0)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{c}},
	})
	check(t, err)
	var pod *corev1.Pod
	eventually(t, name+" runs", func() (err error) {
		if pod, err = pods.Get(t.Context(), name); err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "") {
			err = errors.New("not running yet")
		}
		return err
	})
	return pod
}

// inNetworkPod runs a command in a pod with podium exec.
func inNetworkPod(t *testing.T, ns, pod string, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../../bin/podium", append([]string{"exec", "-n", ns, pod, "--"}, command...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}
