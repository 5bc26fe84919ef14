package dra

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"podium/pkg/kubelet/plugins"
)

func TestContainersGetTheDevicesOfTheirRequests(t *testing.T) {
	for _, version := range []string{drapb.DRAPluginService, drav1beta1.DRAPluginService} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			cards, cables := w.driver(gpu, version), w.driver(nic, version)
			w.claim("one", []string{"big " + gpu, "alt/small " + gpu, "port " + nic}, "a")
			w.claim("two", []string{"card " + gpu}, "a")
			p := pod("a", "one", "two")
			if _, err := w.m.Devices(p, &p.Spec.Containers[0]); err == nil || w.m.Prepared(p) {
				t.Error("devices of claims that are not prepared")
			}
			must(t, w.m.Prepare(t.Context(), p))
			if diff := cmp.Diff([]string{"prepare one,two"}, cards.took()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"prepare one"}, cables.took()); diff != "" {
				t.Error(diff)
			}
			for request, want := range map[string][]string{
				"":     {gpu + "/one=alt_small", gpu + "/one=big", nic + "/one=port"},
				"big":  {gpu + "/one=big"},
				"alt":  {gpu + "/one=alt_small"},
				"port": {nic + "/one=port"},
				"none": nil,
			} {
				p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "one", Request: request}}
				got := w.devices(p)
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("request %q: %s", request, diff)
				}
			}
			if got := w.m.DynamicResources(p, &corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "two"}}}}); len(got) != 1 ||
				got[0].ClaimName != "two" || got[0].ClaimResources[0].DriverName != gpu || got[0].ClaimResources[0].DeviceName != "dev-0" || got[0].ClaimResources[0].CdiDevices[0].Name != gpu+"/two=card" {
				t.Errorf("pod resources: %v", got)
			}
			must(t, w.m.Unprepare(t.Context(), "a"))
			w.idle(cards, cables)
		})
	}
}

func TestClaimsAreFoundByTheirEntries(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	generated := w.claim("pod-a-card-x", []string{"card " + gpu}, "a")
	generated.OwnerReferences = []metav1.OwnerReference{{UID: "a", Controller: new(true)}}
	extended := w.claim("extended", []string{"container-0 " + gpu}, "a")
	extended.OwnerReferences = generated.OwnerReferences
	p := pod("a")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimTemplateName: new("t")}, {Name: "none", ResourceClaimTemplateName: new("t")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}, {Name: "none"}}
	wantErr(t, w.m.Prepare(t.Context(), p), "pod claim card: ResourceClaim not created yet")
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "none"}, {Name: "card", ResourceClaimName: new("pod-a-card-x")}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "extended", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: "example.com/gpu", RequestName: "container-0"}},
	}
	must(t, w.m.Prepare(t.Context(), p))
	if diff := cmp.Diff([]string{gpu + "/pod-a-card-x=card", gpu + "/extended=container-0"}, w.devices(p)); diff != "" {
		t.Error(diff)
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
	w.idle(d)
}

func TestPodsUseOnlyTheirClaims(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("foreign", []string{"card " + gpu}, "b")
	w.claim("waiting", nil).Status.Allocation = nil
	w.claim("group", []string{"card " + gpu}, "a").Status.ReservedFor[0].APIGroup = "scheduling.k8s.io"
	template := pod("a")
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimTemplateName: new("t")}}
	template.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "card", ResourceClaimName: new("stolen")}}
	w.claim("stolen", []string{"card " + gpu}, "a")
	w.claim("away", []string{"card away.example.com", "card " + gpu}, "a")
	for _, row := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{pod("a", "foreign"), "pod pod-a(a) is not allowed to use ResourceClaim foreign(uid-foreign)"},
		{pod("a", "group"), "is not allowed to use"},
		{pod("a", "waiting"), "ResourceClaim waiting is not allocated"},
		{pod("a", "gone"), `fetch ResourceClaim gone: resourceclaims.resource.k8s.io "gone" not found`},
		{template, "ResourceClaim stolen was not created for pod pod-a (pod is not owner)"},
		{pod("a", "away"), "DRA driver away.example.com is not registered"},
	} {
		wantErr(t, w.m.Prepare(t.Context(), row.pod), row.want)
	}
	if calls := d.took(); calls != nil || len(w.m.Pods()) > 0 {
		t.Errorf("calls %q, pods %v", calls, w.m.Pods())
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
}

func TestSharedClaimIsPreparedOnce(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("shared", []string{"card " + gpu}, "a", "b", "c")
	var all sync.WaitGroup
	for _, uid := range []string{"a", "b", "c"} {
		all.Go(func() {
			if err := w.m.Prepare(t.Context(), pod(uid, "shared")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	must(t, w.m.Unprepare(t.Context(), "a"))
	must(t, w.m.Unprepare(t.Context(), "b"))
	if diff := cmp.Diff([]string{"prepare shared"}, d.took()); diff != "" {
		t.Error(diff)
	}
	if _, err := w.m.Devices(pod("a", "shared"), &pod("a", "shared").Spec.Containers[0]); err == nil {
		t.Error("a pod that has released the claim has its devices")
	}
	must(t, w.m.Unprepare(t.Context(), "c"))
	must(t, w.m.Unprepare(t.Context(), "c"))
	if diff := cmp.Diff([]string{"unprepare shared"}, d.took()); diff != "" {
		t.Error(diff)
	}
	w.idle(d)
}

// A pod that was deleted by force may still run when its claim is allocated again.
func TestClaimInUseIsNotPreparedForAnotherAllocation(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	must(t, w.m.Prepare(t.Context(), pod("a", "card")))
	w.claim("card", []string{"other " + gpu}, "b")
	wantErr(t, w.m.Prepare(t.Context(), pod("b", "card")), "is still prepared with other devices")
	w.claim("card", []string{"card " + gpu}, "b").UID = "new"
	wantErr(t, w.m.Prepare(t.Context(), pod("b", "card")), "old ResourceClaim with same name card and different UID uid-card still exists")
	must(t, w.m.Unprepare(t.Context(), "a"))
	must(t, w.m.Prepare(t.Context(), pod("b", "card")))
	must(t, w.m.Unprepare(t.Context(), "b"))
	w.idle(d)
}

// The kubelet may be killed at each of these moments; the checkpoint is what it left.
func TestRestartAtEachStep(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	p := pod("a", "card")

	d.fail(func(context.Context, string) error { return errors.New("killed before it prepared") })
	wantErr(t, w.m.Prepare(t.Context(), p), "killed before")
	d.fail(nil)
	w.restart(d)
	if w.m.Prepared(p) || !slices.Contains(w.m.Pods(), "a") {
		t.Error("the pod's claims after a failed preparation")
	}
	must(t, w.m.Prepare(t.Context(), p))
	w.restart(d)
	if diff := cmp.Diff([]string{gpu + "/card=card"}, w.devices(p)); diff != "" || !w.m.Prepared(p) {
		t.Error("a container that is restarted after a restart of the kubelet", diff)
	}
	d.took()
	must(t, w.m.Prepare(t.Context(), p)) // a new sandbox, perhaps after a reboot
	if diff := cmp.Diff([]string{"prepare card"}, d.took()); diff != "" {
		t.Error(diff)
	}

	d.fail(func(context.Context, string) error { return errors.New("killed before it unprepared") })
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "killed before")
	d.fail(nil)
	w.restart()
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "DRA driver gpu.example.com is not registered")
	must(t, w.m.Register(t.Context(), d.plugin))
	must(t, w.m.Unprepare(t.Context(), "a"))
	w.restart(d)
	if len(w.m.Pods()) > 0 {
		t.Errorf("pods %v", w.m.Pods())
	}
	w.idle(d)
}

func TestFailedCheckpointStopsTheDriver(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	block := w.m.path() + ".new"
	must(t, os.Mkdir(block, 0o700))
	wantErr(t, w.m.Prepare(t.Context(), pod("a", "card")), "write the checkpoint")
	if calls := d.took(); calls != nil {
		t.Errorf("the driver was called without a record: %q", calls)
	}
	must(t, os.Remove(block))
	must(t, w.m.Prepare(t.Context(), pod("a", "card")))
	must(t, os.Mkdir(block, 0o700))
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "write the checkpoint")
	must(t, os.Remove(block))
	w.restart(d)
	must(t, w.m.Unprepare(t.Context(), "a")) // the driver has done it already
	w.idle(d)
}

func TestDamagedCheckpointStopsTheKubelet(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.m.path(), []byte(`{"version":1,"claims":[{"uid":"x"`), 0o600))
	_, err := New(w.cfg)
	wantErr(t, err, stateFile)
}

func TestHostileAnswers(t *testing.T) {
	many := func(n int, d *drapb.Device) (out []*drapb.Device) {
		for range n {
			out = append(out, d)
		}
		return out
	}
	one := func(d *drapb.Device) func(*drapb.NodePrepareResourcesResponse) {
		return func(r *drapb.NodePrepareResourcesResponse) {
			r.Claims["uid-card"] = &drapb.NodePrepareResourceResponse{Devices: []*drapb.Device{d}}
		}
	}
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	for want, answer := range map[string]func(*drapb.NodePrepareResourcesResponse){
		"skipped ResourceClaim card":                  func(r *drapb.NodePrepareResourcesResponse) { clear(r.Claims) },
		"returned results for unknown ResourceClaims": func(r *drapb.NodePrepareResourcesResponse) { r.Claims["other"] = nil },
		"failed for ResourceClaim card: no":           func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"].Error = "no" },
		strings.Repeat("x", maxMessage-3) + "...":     func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"].Error = strings.Repeat("x", 1<<20) },
		"1000 devices are more than 256": func(r *drapb.NodePrepareResourcesResponse) {
			r.Claims["uid-card"].Devices = many(1000, &drapb.Device{})
		},
		"more than 64 requests or CDI ids":       one(&drapb.Device{CdiDeviceIds: make([]string, 100)}),
		"a name is longer than 253 characters":   one(&drapb.Device{PoolName: strings.Repeat("p", 254)}),
		`"/etc/passwd" is not a fully qualified`: one(&drapb.Device{CdiDeviceIds: []string{"/etc/passwd"}}),
		`"" is not a fully qualified CDI device`: one(&drapb.Device{CdiDeviceIds: []string{""}}),
		"received message larger than max":       func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"].Error = strings.Repeat("x", 5<<20) },
	} {
		d.answer = answer
		err := w.m.Prepare(t.Context(), pod("a", "card"))
		if err == nil {
			t.Fatalf("%.100s: no error", want)
		}
		wantErr(t, err, want)
		if len(err.Error()) > 2*maxMessage || w.m.Prepared(pod("a", "card")) {
			t.Errorf("%s: an error of %d bytes, prepared %v", want, len(err.Error()), w.m.Prepared(pod("a", "card")))
		}
	}
	d.answer = func(r *drapb.NodePrepareResourcesResponse) { r.Claims["uid-card"] = nil } // valid: no devices
	must(t, w.m.Prepare(t.Context(), pod("a", "card")))
	if ids := w.devices(pod("a", "card")); len(ids) > 0 {
		t.Errorf("devices %q", ids)
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
	w.idle(d)
}

// A driver that does not answer holds up neither other pods nor the end of the kubelet.
func TestHungDriver(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.cfg.CallTimeout = 300 * time.Millisecond
	w.start()
	hung, fine := w.driver(gpu), w.driver(nic)
	release := make(chan struct{})
	defer close(release)
	hung.fail(func(context.Context, string) error { <-release; return nil })
	w.claim("stuck", []string{"card " + gpu}, "a")
	w.claim("works", []string{"port " + nic}, "b")
	done := make(chan error, 1)
	go func() { done <- w.m.Prepare(t.Context(), pod("a", "stuck")) }()
	must(t, w.m.Prepare(t.Context(), pod("b", "works")))
	wantErr(t, <-done, "DeadlineExceeded")
	must(t, w.m.Unprepare(t.Context(), "b"))
	w.idleBut(1, fine)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- w.m.Prepare(ctx, pod("a", "stuck")) }() // the pod is deleted
	cancel()
	wantErr(t, <-done, "context canceled")
}

// idleBut checks that the drivers have prepared nothing, and that the checkpoint has n
// claims.
func (w *world) idleBut(n int, drivers ...*driver) {
	w.t.Helper()
	for _, d := range drivers {
		if d.holds() > 0 {
			w.t.Errorf("%s has prepared claims", d.name)
		}
	}
	if claims, err := readState(w.m.path()); err != nil || len(claims) != n {
		w.t.Errorf("the checkpoint has %d claims, want %d: %v", len(claims), n, err)
	}
}

// One driver of a claim fails: the other is not asked again, and both unprepare it.
func TestOneOfTwoDriversFails(t *testing.T) {
	w := newWorld(t)
	bad, good := w.driver(gpu), w.driver(nic)
	w.claim("both", []string{"card " + gpu, "port " + nic}, "a")
	bad.fail(func(context.Context, string) error { return errors.New("no") })
	wantErr(t, w.m.Prepare(t.Context(), pod("a", "both")), "DRA driver gpu.example.com: NodePrepareResources")
	bad.fail(nil)
	must(t, w.m.Prepare(t.Context(), pod("a", "both")))
	if diff := cmp.Diff([]string{"prepare both"}, good.took()); diff != "" {
		t.Error(diff)
	}
	bad.fail(func(context.Context, string) error { return errors.New("no") })
	wantErr(t, w.m.Unprepare(t.Context(), "a"), "DRA driver gpu.example.com: NodeUnprepareResources")
	bad.fail(nil)
	must(t, w.m.Unprepare(t.Context(), "a"))
	if diff := cmp.Diff([]string{"unprepare both"}, good.took()); diff != "" {
		t.Error(diff)
	}
	w.idle(bad, good)
}

// During a rolling update two plugins of one driver are registered.
func TestRollingUpdate(t *testing.T) {
	w := newWorld(t)
	old := w.driver(gpu)
	w.claim("one", []string{"card " + gpu}, "a")
	w.claim("two", []string{"card " + gpu}, "b")
	must(t, w.m.Prepare(t.Context(), pod("a", "one")))
	next := &driver{name: gpu, world: w, prepared: map[string]bool{"uid-one": true}}
	next.serve("new.sock")
	defer next.server.Stop()
	must(t, w.m.Prepare(t.Context(), pod("b", "two")))
	must(t, w.m.Deregister(t.Context(), old.plugin))
	old.server.Stop()
	must(t, w.m.Unprepare(t.Context(), "a"))
	must(t, w.m.Unprepare(t.Context(), "b"))
	if diff := cmp.Diff([]string{"prepare two", "unprepare one", "unprepare two"}, next.took()); diff != "" {
		t.Error(diff)
	}
	w.idle(next)

	// The new plugin crashes and leaves its socket; an older one takes over.
	older := &driver{name: gpu, world: w, prepared: map[string]bool{}}
	older.serve("older.sock")
	defer older.server.Stop()
	newest := &driver{name: gpu, world: w, prepared: map[string]bool{}}
	newest.serve("newest.sock")
	newest.server.Stop()
	w.until("the crash is seen", func() bool { return !w.connected(newest.plugin) })
	must(t, w.m.Prepare(t.Context(), pod("a", "one")))
	if diff := cmp.Diff([]string{"prepare one"}, older.took()); diff != "" {
		t.Error(diff)
	}
}

func TestDriversWithGarbageAreNotRegistered(t *testing.T) {
	w := newWorld(t)
	for want, p := range map[string]plugins.Plugin{
		"none of the DRA versions": {Name: gpu, Versions: []string{"1.0.0", "v2.DRAPlugin"}},
		"invalid DRA driver name":  {Name: "a,spec.nodeName=b", Versions: []string{drapb.DRAPluginService}},
	} {
		wantErr(t, w.m.Register(t.Context(), p), want)
	}
	w.stop()
	wantErr(t, w.m.Register(t.Context(), plugins.Plugin{Name: gpu, Versions: []string{drapb.DRAPluginService}}), "stopping")
	w.start()
}

func TestSlicesOfDriversThatStayAwayAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.stop(); w.stop = func() {} }()
		pass := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			return w.deletions()
		}
		p := func(name, socket string) plugins.Plugin {
			return plugins.Plugin{Name: name, Socket: socket}
		}
		connect := func(name string, is bool) {
			w.m.reg.Lock()
			all := slices.Clone(w.m.registry.plugins[name])
			w.m.reg.Unlock()
			for _, have := range all {
				w.m.setConnected(have, is)
			}
		}
		// Nothing watches the connections: the test says what they are.
		add := func(name, socket string) {
			conn, err := plugins.Dial(w.root + "/" + socket)
			must(t, err)
			must(t, w.m.add(&plugin{Plugin: p(name, socket), conn: conn, watched: true}))
		}
		add(gpu, gpu)
		add(nic, nic)
		synctest.Wait()
		connect(gpu, true)
		if got := pass(29 * time.Second); got != nil {
			t.Errorf("too early: %q", got)
		}
		connect(gpu, true)
		want := []string{"spec.nodeName=n,spec.driver=" + nic, "spec.nodeName=n,spec.driver!=" + gpu}
		got := pass(2 * time.Second)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at the start: %s", diff)
		}

		// One plugin of two goes: the driver is there.
		add(gpu, "second")
		connect(gpu, true)
		must(t, w.m.Deregister(t.Context(), p(gpu, gpu)))
		if got := pass(time.Hour); len(got) != 2 {
			t.Errorf("while it is there: %q", got)
		}
		connect(gpu, false) // it crashes, and comes back in time
		pass(29 * time.Second)
		connect(gpu, true)
		if got := pass(time.Hour); len(got) != 2 {
			t.Errorf("after a restart: %q", got)
		}
		w.fail(errDown)
		must(t, w.m.Deregister(t.Context(), p(gpu, "second")))
		pass(40 * time.Second)
		w.fail(nil)
		if got := pass(time.Minute); len(got) != 3 || got[2] != "spec.nodeName=n,spec.driver="+gpu {
			t.Errorf("after it went: %q", got)
		}
		if got := pass(time.Hour); len(got) != 3 {
			t.Errorf("later: %q", got)
		}
	})
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.stop()
	registry := prometheus.NewRegistry()
	w.cfg.Metrics = NewMetrics(registry)
	w.start()
	registry.MustRegister(w.m)
	w.driver(gpu)
	w.driver(nic)
	w.claim("one", []string{"card " + gpu}, "a")
	w.claim("two", []string{"card " + gpu, "port " + nic}, "a")
	must(t, w.m.Prepare(t.Context(), pod("a", "one", "two")))
	const want = `
# HELP dra_resource_claims_in_use The number of ResourceClaims that are currently in use on the node, by driver name and, as <any>, in total.
# TYPE dra_resource_claims_in_use gauge
dra_resource_claims_in_use{driver_name="<any>"} 2
dra_resource_claims_in_use{driver_name="gpu.example.com"} 2
dra_resource_claims_in_use{driver_name="nic.example.com"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "dra_resource_claims_in_use"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(w.cfg.Metrics.calls); n != 2 {
		t.Errorf("%d series of calls", n)
	}
	if n := testutil.CollectAndCount(w.cfg.Metrics.operations); n != 1 {
		t.Errorf("%d series of operations", n)
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
}

func TestCDINames(t *testing.T) {
	for id, want := range map[string]bool{
		"vendor.com/gpu=0": true, "vendor.com/gpu=all": true, "v/c=a:b.c-d_e": true, "V.com/net-class_1=x": true,
		"": false, "=": false, "/=": false, "vendor.com/gpu": false, "vendor.com/gpu=": false, "/gpu=0": false, "vendor.com/=0": false,
		"0vendor/gpu=0": false, "vendor-/gpu=0": false, "vendor/gpu.x=0": false, "vendor/gpu=a/b": false, "vendor/gpu=a=b": false, "vendor/gpu= 0": false,
		"vendor/gpu=" + strings.Repeat("0", 1000): false,
	} {
		if got := validID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"claims":[{"uid":"u","namespace":"d","name":"c","allocated":["r d p x"],"pods":["a"],"drivers":{"d":{"called":true,"prepared":true,"devices":[{"pool":"p","name":"x","requests":["r"],"cdi":["v/c=x"]}]}}}]}`))
	f.Add([]byte(`{"version":1,"claims":[null,{"uid":"u","namespace":"d","name":"c","drivers":{"d":null}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		claims, err := parseState(data)
		if err != nil {
			return
		}
		m := &Manager{claims: claims}
		m.Pods()
		m.Prepared(pod("a", "c"))
		_, _ = m.Devices(pod("a", "c"), &pod("a", "c").Spec.Containers[0])
		for uid := range m.heldBy("a") {
			if _, err := m.leave("a", map[types.UID]bool{uid: true}); err == nil && claims[uid].Drivers["d"] != nil && claims[uid].Drivers["d"].Called {
				t.Error("an absent driver was found")
			}
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add("uid-a", "vendor.com/gpu=0", "request", "", 1)
	f.Add("uid-b", "x", "r/s", "no", 300)
	f.Fuzz(func(t *testing.T, uid, id, request, failure string, n int) {
		answer := &drapb.NodePrepareResourceResponse{Error: failure}
		for range max(0, min(n, 1000)) {
			answer.Devices = append(answer.Devices, &drapb.Device{CdiDeviceIds: []string{id}, RequestNames: []string{request}})
		}
		res := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{uid: answer, uid + "x": nil}}
		made, err := preparedDevices([]*drapb.Claim{{Uid: "uid-a", Name: "a"}}, res)
		if err == nil {
			t.Fatal("two answers to one question are accepted")
		}
		for claim, devices := range made {
			if claim != "uid-a" || len(devices) > maxDevices {
				t.Errorf("%s: %d devices", claim, len(devices))
			}
			for _, d := range devices {
				if !validID(d.CDI[0]) {
					t.Errorf("id %q", d.CDI[0])
				}
			}
		}
	})
}
