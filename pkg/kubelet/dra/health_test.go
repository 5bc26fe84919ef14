package dra

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// healthService sends what a test says about the devices.
type healthService struct {
	healthpb.UnimplementedDRAResourceHealthServer
	says chan *healthpb.NodeWatchResourcesResponse
	ends chan error // what ends the present call
}

func newHealthService() *healthService {
	return &healthService{says: make(chan *healthpb.NodeWatchResourcesResponse), ends: make(chan error)}
}

func (s *healthService) NodeWatchResources(_ *healthpb.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthpb.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case err := <-s.ends:
			return err
		case r := <-s.says:
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
}

func (s *healthService) say(devices ...*healthpb.DeviceHealth) {
	s.says <- &healthpb.NodeWatchResourcesResponse{Devices: devices}
}

// offer says something if a call waits for it.
func (s *healthService) offer(d *healthpb.DeviceHealth) {
	select {
	case s.says <- &healthpb.NodeWatchResourcesResponse{Devices: []*healthpb.DeviceHealth{d}}:
	default:
	}
}

func deviceHealth(name string, health healthpb.HealthStatus, message string) *healthpb.DeviceHealth {
	return &healthpb.DeviceHealth{Device: &healthpb.DeviceIdentifier{PoolName: "n", DeviceName: name}, Health: health, Message: message}
}

// tell records which pods are told of a change.
func (w *world) tell(pods []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range pods {
		w.told = append(w.told, string(uid))
	}
}

// toldOf returns the pods that were told since the last time.
func (w *world) toldOf() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.told
	w.told = nil
	slices.Sort(out)
	return out
}

// healthOf returns the health of the devices of a pod's container, as "resource id health message".
func (w *world) healthOf(p *corev1.Pod) (out []string) {
	for _, s := range w.m.Health(p, &p.Spec.Containers[0]) {
		for _, r := range s.Resources {
			row := string(s.Name) + " " + string(r.ResourceID) + " " + string(r.Health)
			if r.Message != nil {
				row += " " + *r.Message
			}
			out = append(out, row)
		}
	}
	return out
}

func (w *world) wantHealth(p *corev1.Pod, want ...string) {
	w.t.Helper()
	var got []string
	w.until(strings.Join(want, "; "), func() bool {
		got = w.healthOf(p)
		return slices.Equal(got, want)
	})
}

func TestHealthIsShownInTheStatusOfContainers(t *testing.T) {
	for _, version := range []string{healthpb.DRAResourceHealthService, healthv1alpha1.DRAResourceHealthService} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			h := newHealthService()
			d := &driver{name: gpu, world: w, prepared: map[string]bool{}, health: h}
			d.serve("gpu.sock", drapb.DRAPluginService, version)
			t.Cleanup(func() { d.server.Stop() })
			w.claim("card", []string{"a " + gpu, "b " + gpu, "net " + nic}, "1", "2")
			w.claim("other", []string{"a " + gpu, "b " + gpu}, "3")
			one, three := pod("1", "card"), pod("3", "other")
			one.Spec.Containers[0].Resources.Claims[0].Request = "b"
			if got := w.m.Health(one, &one.Spec.Containers[0]); got != nil {
				t.Errorf("before the claims are prepared: %v", got)
			}
			w.driver(nic)
			for _, p := range []*corev1.Pod{one, pod("2", "card"), three} {
				must(t, w.m.Prepare(t.Context(), p))
			}
			w.wantHealth(one, "claim:card/b gpu.example.com/n/dev-1 Unknown")

			h.say(deviceHealth("dev-1", healthpb.HealthStatus_UNHEALTHY, "it is hot"))
			w.wantHealth(one, "claim:card/b gpu.example.com/n/dev-1 Unhealthy it is hot")
			w.wantHealth(pod("2", "card"), "claim:card gpu.example.com/n/dev-0 Unknown",
				"claim:card gpu.example.com/n/dev-1 Unhealthy it is hot", "claim:card nic.example.com/n/dev-2 Unknown")
			w.wantHealth(three, "claim:other gpu.example.com/n/dev-0 Unknown", "claim:other gpu.example.com/n/dev-1 Unhealthy it is hot")
			var told []string
			w.until("the pods of the device are told", func() bool {
				told = append(told, w.toldOf()...)
				return len(told) >= 3
			})
			if diff := cmp.Diff([]string{"1", "2", "3"}, told); diff != "" {
				t.Error(diff)
			}
			// The same again is no news; another driver's device of that name is another one.
			h.say(deviceHealth("dev-1", healthpb.HealthStatus_UNHEALTHY, "it is hot"), deviceHealth("dev-2", healthpb.HealthStatus_UNHEALTHY, ""))
			h.say(deviceHealth("dev-1", healthpb.HealthStatus_HEALTHY, ""))
			w.wantHealth(one, "claim:card/b gpu.example.com/n/dev-1 Healthy")
			if got := w.healthOf(pod("2", "card")); got[2] != "claim:card nic.example.com/n/dev-2 Unknown" {
				t.Errorf("a driver spoke for another one: %q", got)
			}

			// The stream breaks, and the driver serves again on another socket.
			h.ends <- errDown
			h.say(deviceHealth("dev-1", healthpb.HealthStatus_UNHEALTHY, "again"))
			w.wantHealth(one, "claim:card/b gpu.example.com/n/dev-1 Unhealthy again")
			d.server.Stop()
			must(t, w.m.Deregister(t.Context(), d.plugin))
			d.serve("gpu2.sock", drapb.DRAPluginService, version)
			h.say(deviceHealth("dev-1", healthpb.HealthStatus_HEALTHY, ""))
			w.wantHealth(one, "claim:card/b gpu.example.com/n/dev-1 Healthy")

			w.restart(d)
			w.wantHealth(one, "claim:card/b gpu.example.com/n/dev-1 Unknown")
			w.until("the device is healthy", func() bool { // the call of the stopped kubelet may take a report
				h.offer(deviceHealth("dev-1", healthpb.HealthStatus_HEALTHY, ""))
				return slices.Equal(w.healthOf(one), []string{"claim:card/b gpu.example.com/n/dev-1 Healthy"})
			})
			must(t, w.m.Unprepare(t.Context(), one.UID))
			if got := w.m.Health(one, &one.Spec.Containers[0]); got != nil {
				t.Errorf("after the claims are free: %v", got)
			}
		})
	}
}

// A driver that announces the service and does not serve it is asked once.
func TestHealthThatIsNotServed(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu, drapb.DRAPluginService, healthpb.DRAResourceHealthService)
	w.claim("card", []string{"a " + gpu}, "1")
	must(t, w.m.Prepare(t.Context(), pod("1", "card")))
	w.wantHealth(pod("1", "card"), "claim:card gpu.example.com/n/dev-0 Unknown")
	w.m.reg.Lock()
	p := w.m.plugins[gpu][0]
	w.m.reg.Unlock()
	done := make(chan struct{})
	go func() { w.m.watchHealth(t.Context(), p); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the kubelet asks again and again")
	}
	if d.holds() != 1 {
		t.Error("the claim is not prepared")
	}
}

func TestHealthExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.stop(); w.stop = func() {} }()
		c := w.claim("card", []string{"a " + gpu, "b " + gpu}, "1")
		synctest.Wait() // the manager runs
		prepared := &part{Prepared: true, Devices: []device{{Pool: "n", Name: "dev-0"}, {Pool: "n", Name: "dev-1"}}}
		held := &claim{UID: c.UID, Pods: []types.UID{"1"}, Drivers: map[string]*part{gpu: prepared}}
		w.m.mu.Lock()
		w.m.claims[c.UID] = held
		w.m.mu.Unlock()
		hour := deviceHealth("dev-1", healthpb.HealthStatus_HEALTHY, "")
		hour.HealthCheckTimeoutSeconds = 3600
		take := func(devices ...*healthpb.DeviceHealth) {
			w.m.tell(w.m.health.take(gpu, devices, time.Now()))
			w.m.poke()
			synctest.Wait()
		}
		health := func(name string) string {
			return string(w.m.health.of(deviceID{gpu, "n", name}).health)
		}
		take(deviceHealth("dev-0", healthpb.HealthStatus_HEALTHY, ""), hour)
		time.Sleep(29 * time.Second)
		take(deviceHealth("dev-0", healthpb.HealthStatus_HEALTHY, "")) // no news, but it holds for longer
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := w.toldOf(); !slices.Equal(got, []string{"1"}) || health("dev-0") != "Healthy" {
			t.Errorf("told %q; dev-0 is %s", got, health("dev-0"))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.toldOf(); !slices.Equal(got, []string{"1"}) || health("dev-0") != "Unknown" || health("dev-1") != "Healthy" {
			t.Errorf("after 30 s: told %q; dev-0 is %s, dev-1 %s", got, health("dev-0"), health("dev-1"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := w.toldOf(); !slices.Equal(got, []string{"1"}) || health("dev-1") != "Unknown" || len(w.m.health.known) > 0 {
			t.Errorf("after an hour: told %q; dev-1 is %s", got, health("dev-1"))
		}
	})
}

func FuzzHealth(f *testing.F) {
	add := func(devices ...*healthpb.DeviceHealth) {
		data, err := proto.Marshal(&healthpb.NodeWatchResourcesResponse{Devices: devices})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	add(nil, deviceHealth("a", healthpb.HealthStatus_HEALTHY, ""), deviceHealth("a", 77, strings.Repeat("ü", 600)))
	add(&healthpb.DeviceHealth{HealthCheckTimeoutSeconds: 1 << 62}, &healthpb.DeviceHealth{HealthCheckTimeoutSeconds: -1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var r healthpb.NodeWatchResourcesResponse
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		var table healthTable
		now := time.Now()
		table.take(gpu, r.Devices, now)
		if changed := table.take(gpu, r.Devices[:min(1, len(r.Devices))], now); len(r.Devices) == 1 && len(changed) > 0 {
			t.Errorf("the same report twice changes %v", changed)
		}
		for id, r := range table.known {
			if len(r.message) > corev1.ResourceHealthMessageMaxLength || !utf8.ValidString(r.message) || r.health == "" {
				t.Errorf("%v: %q is %s", id, r.message, r.health)
			}
			if d := r.until.Sub(now); d <= 0 || d > maxHealthTimeout {
				t.Errorf("%v holds for %s", id, d)
			}
		}
		if _, next := table.expire(now.Add(maxHealthTimeout)); len(table.known) > 0 || !next.IsZero() {
			t.Errorf("%d reports are left after a day", len(table.known))
		}
	})
}
