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
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"podium/pkg/client"
	"podium/pkg/kubelet/plugins"
)

const cardsDriver = "cards.example.com"

// dealt is a driver on upstream's library, with the devices card-0 and card-1 on the node.
type dealt struct {
	*space
	*peer
	cdi bool // the runtime knows CDI: containers get something of their devices
}

// newDealt starts the driver, with these arguments beside those that all tests share.
func newDealt(t *testing.T, more ...string) *dealt {
	s := newSpace(t)
	args := append(more, "-kubeconfig="+filepath.Join(the.dir, "kubeconfig"), "-root="+kubeletRoot(t), "-name="+cardsDriver, "-node=node-a")
	v, err := the.runtime(t).Version(t.Context(), &cri.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	d := &dealt{space: s, cdi: strings.TrimPrefix(v.RuntimeVersion, "v") >= "2"}
	if d.cdi {
		args = append(args, "-cdi=/var/run/cdi")
		t.Cleanup(func() { _ = os.Remove("/var/run/cdi") }) // unless others use it
	}
	d.peer = startPeer(t, "dradriver", args...)
	s.apply(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: cards.example.com}
spec: {extendedResourceName: example.com/card, selectors: [{cel: {expression: 'device.driver == "cards.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: card}
spec: {spec: {devices: {requests: [{name: any, exactly: {deviceClassName: cards.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: second}
spec: {devices: {requests: [{name: any, exactly: {
  deviceClassName: cards.example.com,
  selectors: [{cel: {expression: 'device.attributes["cards.example.com"].index == 1'}}]}}]}}
`)
	t.Cleanup(func() {
		_ = client.For[*resourcev1.DeviceClass](s.api).Delete(context.Background(), cardsDriver, metav1.DeleteOptions{})
	})
	return d
}

// using creates a pod with a claim: "resourceClaimName: NAME" or "resourceClaimTemplateName: NAME".
func (d *dealt) using(name, claim string) {
	d.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: card, %s}]
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      resources: {claims: [{name: card}]}
`, name, claim))
}

// plans plans two pods while one device is free: one of them waits.
func (d *dealt) plans() {
	d.Helper()
	c := &cli{space: d.space, dir: d.TempDir()}
	file := c.file("web.yaml", workload("apps/v1", "Deployment", "web", "replicas: 2\n  "+selects("web"), "", "resourceClaims: [{name: card, resourceClaimTemplateName: card}]"))
	planned := c.podium("plan", "-f", file)
	for _, line := range []string{"/web-0 → node-a: the only one of 1 nodes that fits\n", "/web-1 → pending: 0/1 nodes are available: 1 cannot allocate all claims."} {
		if !strings.Contains(planned, line) {
			d.Errorf("podium plan printed\n%s\nwithout %q", planned, line)
		}
	}
}

func (d *dealt) order(line string) {
	d.Helper()
	before := strings.Count(d.says(), "done ")
	fmt.Fprintln(d.stdin, line)
	eventually(d.T, 10*time.Second, "the driver obeys", func() error {
		if strings.Count(d.says(), "done ") == before {
			return fmt.Errorf("it has not read %q", line)
		}
		return nil
	})
}

// listed returns the devices of each pod that the pod resources API lists.
func (d *dealt) listed() map[string]string {
	d.Helper()
	conn, err := plugins.Dial(filepath.Join(kubeletRoot(d.T), "pod-resources", "kubelet.sock"))
	if err != nil {
		d.Fatal(err)
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(d.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		d.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			for _, r := range c.DynamicResources {
				for _, device := range r.ClaimResources {
					out[p.Name] += fmt.Sprint(c.Name, " ", device.DriverName, "/", device.PoolName, "/", device.DeviceName)
				}
			}
		}
	}
	return out
}

// healthy waits until the status of a pod's container shows the health of its device.
func (d *dealt) healthy(pod, device string, want corev1.ResourceHealthStatus, message string) {
	d.Helper()
	h := corev1.ResourceHealth{ResourceID: corev1.ResourceID(cardsDriver + "/node-a/" + device), Health: want}
	if message != "" {
		h.Message = &message
	}
	d.pod(pod, fmt.Sprintf("shows that %s is %s", device, want), func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && cmp.Equal(p.Status.ContainerStatuses[0].AllocatedResourcesStatus,
			[]corev1.ResourceStatus{{Name: "claim:card", Resources: []corev1.ResourceHealth{h}}})
	})
}

func (d *dealt) remove(pod string) {
	d.Helper()
	d.deleted(pod, func() error { return in[*corev1.Pod](d.space).Delete(d.Context(), pod, metav1.DeleteOptions{}) })
}

// free waits until the claims of the space are those that are named, all of them without a device,
// and the driver has undone all that it has prepared.
func (d *dealt) free(names ...string) {
	d.Helper()
	eventually(d.T, time.Minute, "the devices are free", func() error {
		list, err := in[*resourcev1.ResourceClaim](d.space).List(d.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, c := range list.Items {
			left = append(left, c.Name)
			if c.Status.Allocation != nil || len(c.Status.ReservedFor) > 0 {
				return fmt.Errorf("%s is allocated, and reserved for %v", c.Name, c.Status.ReservedFor)
			}
		}
		if diff := cmp.Diff(names, left); diff != "" {
			return fmt.Errorf("claims: %s", diff)
		}
		held := map[string]bool{}
		for line := range strings.Lines(d.says()) {
			if verb, claim, _ := strings.Cut(strings.TrimSpace(line), " "); verb == "prepare" || verb == "unprepare" {
				held[claim] = verb == "prepare"
			}
		}
		for claim, yes := range held {
			if yes {
				return fmt.Errorf("the driver has prepared %s and not undone it", claim)
			}
		}
		return nil
	})
}

// Pods get devices of upstream's driver by their claims, wait for devices that others have, and
// keep them while the kubelet, the driver and the controllers are killed.
func TestClaims(t *testing.T) {
	d := newDealt(t)
	d.using("first", "resourceClaimName: second")
	d.pod("first", "runs", running)
	d.plans()
	d.using("other", "resourceClaimTemplateName: card")
	d.pod("other", "runs", running)
	want := map[string]string{"first": "box cards.example.com/node-a/card-1", "other": "box cards.example.com/node-a/card-0"}
	if diff := cmp.Diff(want, d.listed()); diff != "" {
		t.Error(diff)
	}
	if d.cdi {
		for pod, devices := range map[string]string{"first": "card-1", "other": "card-0"} {
			if got := d.exec(pod, "echo $DRA_DEVICES"); strings.TrimSpace(got) != devices {
				t.Errorf("%s has the devices %q, want %s", pod, got, devices)
			}
		}
	}
	d.using("next", "resourceClaimTemplateName: card")
	d.said("next", "FailedScheduling", "cannot allocate all claims")
	d.explain([]broken{{"pod/next", "", `other claims have the devices that the pod asks for: claim next-card-.*: 1 of class cards.example.com`}})
	d.using("shares", "resourceClaimName: second")
	d.pod("shares", "runs", running)
	d.order("unhealthy card-1 it is hot")
	d.healthy("first", "card-1", corev1.ResourceHealthStatusUnhealthy, "it is hot")
	d.healthy("shares", "card-1", corev1.ResourceHealthStatusUnhealthy, "it is hot")
	d.healthy("other", "card-0", corev1.ResourceHealthStatusHealthy, "")

	for _, daemon := range []string{"kubelet", "kube-controller-manager", "kube-scheduler"} {
		the.kill(t, daemon)
	}
	d.end()
	if err := the.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.start()
	for _, name := range []string{"first", "other", "shares"} {
		if got := d.pod(name, "runs on", running).Status.ContainerStatuses[0].RestartCount; got != 0 {
			t.Errorf("%s has been restarted %d times", name, got)
		}
	}
	d.healthy("first", "card-1", corev1.ResourceHealthStatusHealthy, "") // as the new driver says
	d.remove("other")
	d.pod("next", "runs with the device of the other", running)
	want = map[string]string{"first": "box cards.example.com/node-a/card-1", "shares": "box cards.example.com/node-a/card-1", "next": "box cards.example.com/node-a/card-0"}
	if diff := cmp.Diff(want, d.listed()); diff != "" {
		t.Error(diff)
	}

	d.apply(`
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: broken}
spec:
  deviceSelector: {driver: cards.example.com, device: card-1}
  taint: {key: example.com/broken, effect: NoExecute}
`)
	rules := client.For[*resourcev1.DeviceTaintRule](d.api)
	t.Cleanup(func() { _ = rules.Delete(context.Background(), "broken", metav1.DeleteOptions{}) })
	eventually(t, time.Minute, "the rule has evicted two pods", func() error {
		r, err := rules.Get(t.Context(), "broken")
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(r.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress); c == nil || c.Reason != "Completed" || !strings.Contains(c.Message, "2 pods evicted") {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	d.said("shares", "DeviceTaintManagerEviction", "Marking for deletion")
	d.pod("next", "keeps the other device", running)
	d.remove("next")
	d.free("second")
}

// A claim that the driver refuses holds its pod back, whose events say why; when the driver stays
// away, its devices are withdrawn.
func TestClaimsThatAreRefused(t *testing.T) {
	d := newDealt(t)
	d.order("refuse the card is on fire")
	d.using("user", "resourceClaimTemplateName: card")
	d.said("user", "FailedPrepareDynamicResources", "the card is on fire")
	d.explain([]broken{{"pod/user", "", "node node-a cannot prepare the pod's devices: .*the card is on fire"}})
	d.order("accept")
	d.pod("user", "runs", running)
	d.remove("user")
	d.free("second")

	d.end()
	eventually(t, 2*time.Minute, "the devices are withdrawn", func() error {
		list, err := client.For[*resourcev1.ResourceSlice](d.api).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + cardsDriver})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d slices", len(list.Items))
		}
		return err
	})
}

// counting creates a pod whose container, and another one before it, ask for a number of cards as an extended resource.
func (d *dealt) counting(name string, before, count int) {
	d.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
    - name: before
      image: localhost/podium/busybox:v1
      command: [sh, -c, 'echo "$DRA_DEVICES" > /dev/termination-log']
      resources: {limits: {example.com/card: %d}}
  containers:
    - name: box
      image: localhost/podium/busybox:v1
      command: [sleep, "3600"]
      resources: {limits: {example.com/card: %d}}
`, name, before, count))
}

// Pods that ask for an extended resource as from a device plugin get devices of the class that stands for it.
func TestClaimsForExtendedResources(t *testing.T) {
	d := newDealt(t)
	d.counting("first", 1, 1)
	first := d.pod("first", "runs", running)
	want := first.Status.ExtendedResourceClaimStatus
	if want == nil || len(want.RequestMappings) != 2 {
		t.Fatalf("the pod's status names the claim %+v", want)
	}
	if device := d.listed()["first"]; device != "box cards.example.com/node-a/card-0" {
		t.Errorf("the pod has %s", device)
	}
	if d.cdi {
		if got := d.exec("first", "echo $DRA_DEVICES"); strings.TrimSpace(got) != "card-0" {
			t.Errorf("the container has the devices %q", got)
		}
		if got := first.Status.InitContainerStatuses[0].State.Terminated; got == nil || strings.TrimSpace(got.Message) != "card-0" {
			t.Errorf("the init container had the devices %+v", got)
		}
	}
	d.counting("next", 2, 1)
	d.said("next", "FailedScheduling", "cannot allocate all claims")
	the.kill(t, "kube-scheduler")
	the.kill(t, "kubelet")
	if err := the.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.pod("first", "runs on", running).Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("first has been restarted %d times", got)
	}
	d.remove("first")
	d.pod("next", "runs with both devices", running)
	d.remove("next")
	d.free("second")
}

// A pod whose devices have to be attached is bound when the driver has attached them, and gets others
// when that fails.
func TestClaimsThatAreAttached(t *testing.T) {
	d := newDealt(t, "-attach", "-first=2") // devices of an earlier test may still be published
	d.apply(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: third}
spec: {devices: {requests: [{name: any, exactly: {
  deviceClassName: cards.example.com,
  selectors: [{cel: {expression: 'device.attributes["cards.example.com"].index == 2'}}]}}]}}
`)
	d.using("user", "resourceClaimName: third")
	d.allotted("third")
	the.kill(t, "kube-scheduler")
	if err := the.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.explain([]broken{{"pod/user", "", "pod/user: the pod has devices that are not ready yet: cards.example.com/node-a/card-2: Attached"}})
	if node := d.pod("user", "waits", func(*corev1.Pod) bool { return true }).Spec.NodeName; node != "" {
		t.Errorf("the pod is on %s", node)
	}
	d.order("break " + d.name + "/third the cable is out")
	d.said("user", "FailedScheduling", "binding of devices failed: claim third: device cards.example.com/node-a/card-2: Broken: the cable is out")
	d.allotted("third")
	d.order("attach " + d.name + "/third")
	d.pod("user", "runs", running)
	if got := d.listed()["user"]; got != "box cards.example.com/node-a/card-2" {
		t.Errorf("the pod has %q", got)
	}
	d.remove("user")
	d.free("second", "third")
}

// allotted waits until a claim has devices that nothing has been said of.
func (d *dealt) allotted(claim string) {
	d.Helper()
	eventually(d.T, time.Minute, "the claim gets devices", func() error {
		c, err := in[*resourcev1.ResourceClaim](d.space).Get(d.Context(), claim)
		if err == nil && (c.Status.Allocation == nil || len(c.Status.Devices) > 0) {
			err = fmt.Errorf("its status is %+v", c.Status)
		}
		return err
	})
}
