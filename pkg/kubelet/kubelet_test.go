package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/shutdown"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/version"
)

// hollow returns the configuration of a kubelet over a fake runtime.
func hollow(t *testing.T, api *clienttest.Server, name string, runtime *crifake.Runtime, dir string) Config {
	return Config{
		Client: api.Client(t), Log: slog.New(slog.DiscardHandler), NodeName: name, Register: true,
		Machine: Machine{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: name}},
			Info:      corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: version.Podium},
			Capacity:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		},
		Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
		Runtime:  runtime, Images: runtime.ImageService(), Mounter: volumes.Unmounted{}, RootDir: dir, Options: pods.Options{HostsFile: os.DevNull},
	}
}

// run starts a kubelet. stop ends it and waits for it.
func run(t *testing.T, cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := Run(ctx, cfg); err != nil && ctx.Err() == nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() { cancel(); done.Wait() }
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func boundPod(name, node string) *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "app", Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func TestNodeIsRegisteredAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, api := t.Context(), clienttest.New()
		runtime := crifake.New(crifake.Config{NetworkDown: true})
		stop := run(t, hollow(t, api, "n1", runtime, t.TempDir()))
		defer func() { stop() }()
		nodes := client.For[*corev1.Node](api.Client(t))
		after(time.Second)
		n, err := nodes.Get(ctx, "n1")
		if err != nil {
			t.Fatal(err)
		}
		ready := func() corev1.NodeCondition {
			n, err := nodes.Get(ctx, "n1")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c
				}
			}
			return corev1.NodeCondition{}
		}
		const want = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
		if c := ready(); c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != want {
			t.Errorf("condition is %+v", c)
		}
		if cpu := n.Status.Allocatable.Cpu().String(); cpu != "3500m" || n.Labels[corev1.LabelHostname] != "n1" || n.Status.Allocatable.Pods().Value() != 110 {
			t.Errorf("node is %+v", n)
		}
		runtime.SetNetworkReady(true)
		after(time.Second)
		if c := ready(); c.Status != corev1.ConditionTrue || c.Message != "kubelet is posting ready status" {
			t.Errorf("condition is %+v", c)
		}

		before := len(api.Writes())
		after(10 * time.Minute)
		kinds := map[string]int{}
		for _, r := range api.Writes()[before:] {
			kinds[r]++
		}
		if n := kinds["PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"]; n < 59 || n > 61 {
			t.Errorf("%d renewals in ten minutes", n)
		}
		if n := kinds["PATCH /api/v1/nodes/n1/status"]; n != 2 {
			t.Errorf("%d status writes in ten minutes in which nothing changed: %v", n, kinds)
		}
		lease, err := client.For[*coordinationv1.Lease](api.Client(t)).In(corev1.NamespaceNodeLease).Get(ctx, "n1")
		if err != nil || *lease.Spec.HolderIdentity != "n1" || len(lease.OwnerReferences) != 1 {
			t.Errorf("lease is %+v, %v", lease, err)
		}

		if err := nodes.Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		after(20 * time.Second)
		if c := ready(); c.Status != corev1.ConditionTrue {
			t.Error("a deleted node is not registered again")
		}
	})
}

func TestManyKubeletsInOneBubble(t *testing.T) {
	const nodes, podsEach = 20, 10
	synctest.Test(t, func(t *testing.T) {
		ctx, api := t.Context(), clienttest.New()
		var stops []func()
		var runtimes []*crifake.Runtime
		start := func(i int) func() {
			return run(t, hollow(t, api, fmt.Sprint("n", i), runtimes[i], t.TempDir()))
		}
		for i := range nodes {
			runtimes = append(runtimes, crifake.New(crifake.Config{Images: []string{"app:1"}}))
			stops = append(stops, start(i))
		}
		after(time.Second)
		pods := client.For[*corev1.Pod](api.Client(t)).In("default")
		for i := range nodes * podsEach {
			if _, err := pods.Create(ctx, boundPod(fmt.Sprint("p", i), fmt.Sprint("n", i%nodes))); err != nil {
				t.Fatal(err)
			}
		}
		after(5 * time.Second)
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if p.Status.Phase != corev1.PodRunning {
				t.Fatalf("%s is %+v", p.Name, p.Status)
			}
		}
		// Kill all kubelets at once, delete some pods meanwhile, restart all kubelets.
		for _, stop := range stops {
			stop()
		}
		for i := range nodes {
			if err := pods.Delete(ctx, fmt.Sprint("p", i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range stops {
			stops[i] = start(i)
		}
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		after(2 * time.Minute)
		for i, r := range runtimes {
			if got := len(r.Containers()); got != podsEach-1 {
				t.Errorf("node %d has %d containers", i, got)
			}
			for _, c := range r.Containers() {
				if c.Attempt != 0 {
					t.Errorf("%s was restarted", c.Pod)
				}
			}
		}
		if _, err := pods.Get(ctx, "p0"); !apierrors.IsNotFound(err) {
			t.Errorf("p0: %v", err)
		}
	})
}

// bus is a logind that delays every shutdown long enough.
type bus struct{ news chan bool }

func (b *bus) MaxDelay() (time.Duration, error)  { return time.Hour, nil }
func (b *bus) RaiseMaxDelay(time.Duration) error { return nil }
func (b *bus) Inhibit() (shutdown.Lock, error)   { return b, nil }
func (b *bus) Close() error                      { return nil }
func (b *bus) Next(ctx context.Context) (bool, error) {
	select {
	case begins := <-b.news:
		return begins, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// A node that shuts down is not ready, and its pods fail.
func TestNodeThatShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, api, logind := t.Context(), clienttest.New(), &bus{news: make(chan bool)}
		cfg := hollow(t, api, "n1", crifake.New(crifake.Config{Images: []string{"app:1"}}), t.TempDir())
		cfg.Shutdown = shutdown.Split(10*time.Second, 0)
		cfg.Logind = func() (shutdown.Bus, error) { return logind, nil }
		stop := run(t, cfg)
		defer func() { stop() }()
		pods, nodes := client.For[*corev1.Pod](api.Client(t)).In("default"), client.For[*corev1.Node](api.Client(t))
		if _, err := pods.Create(ctx, boundPod("p", "n1")); err != nil {
			t.Fatal(err)
		}
		after(5 * time.Second)
		ready := func() corev1.NodeCondition {
			n, err := nodes.Get(ctx, "n1")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c
				}
			}
			return corev1.NodeCondition{}
		}
		if c := ready(); c.Status != corev1.ConditionTrue {
			t.Fatalf("the node is %+v", c)
		}
		logind.news <- true
		after(5 * time.Second)
		if c := ready(); c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "node is shutting down" {
			t.Errorf("the node is %+v", c)
		}
		p, err := pods.Get(ctx, "p")
		if err != nil || p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" {
			t.Errorf("the pod is %+v, %v", p.Status, err)
		}
		logind.news <- false
		after(5 * time.Second)
		if c := ready(); c.Status != corev1.ConditionTrue {
			t.Errorf("after a cancelled shutdown the node is %+v", c)
		}
	})
}

// A volume shows a change of its ConfigMap at once, and the kubelet reads the object no
// more while nothing changes.
func TestVolumesShowChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, api, dir := t.Context(), clienttest.New(), t.TempDir()
		var reads atomic.Int32
		api.Before = func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps/settings") {
				reads.Add(1)
			}
			return nil, nil
		}
		configMaps := client.For[*corev1.ConfigMap](api.Client(t)).In("default")
		cm, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"color": "red"}})
		if err != nil {
			t.Fatal(err)
		}
		pod := boundPod("p", "n1")
		mode := int32(0o644)
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, DefaultMode: &mode,
		}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		pod, err = client.For[*corev1.Pod](api.Client(t)).In("default").Create(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, hollow(t, api, "n1", crifake.New(crifake.Config{Images: []string{"app:1"}}), dir))
		defer stop()
		shows := func(want string) {
			t.Helper()
			file := filepath.Join(dir, "pods", string(pod.UID), "volumes", "kubernetes.io~configmap", "v", "color")
			if got, err := os.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("the file holds %q, %v; want %q", got, err, want)
			}
		}
		after(5 * time.Second)
		shows("red")
		before := reads.Load()
		after(10 * time.Minute)
		if n := reads.Load() - before; n > 0 {
			t.Errorf("%d reads in ten minutes in which nothing changed", n)
		}
		cm.Data = map[string]string{"color": "blue"}
		if _, err := configMaps.Update(ctx, cm); err != nil {
			t.Fatal(err)
		}
		after(100 * time.Millisecond)
		shows("blue")
	})
}
