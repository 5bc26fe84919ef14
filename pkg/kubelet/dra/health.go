package dra

import (
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"podium/pkg/backoff"
)

const (
	defaultHealthTimeout = 30 * time.Second // upstream's
	maxHealthTimeout     = 24 * time.Hour
)

// deviceID identifies a device in the cluster.
type deviceID struct{ driver, pool, name string }

func (d deviceID) String() string { return d.driver + "/" + d.pool + "/" + d.name }

// healthTable knows what drivers have said about the health of devices. The health of a device
// that is not in it is unknown.
type healthTable struct {
	mu    sync.Mutex
	known map[deviceID]report
}

// report is what a driver has said about a device.
type report struct {
	health  corev1.ResourceHealthStatus
	message string
	until   time.Time // when it no longer holds
}

func (t *healthTable) of(d deviceID) report {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.known[d]; ok {
		return r
	}
	return report{health: corev1.ResourceHealthStatusUnknown}
}

// take records what a driver says now and returns the devices of which it says something new.
func (t *healthTable) take(driver string, devices []*healthpb.DeviceHealth, now time.Time) (changed []deviceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[deviceID]report{}
	}
	for _, d := range devices {
		id := deviceID{driver, d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		new := newReport(d, now)
		if old := t.known[id]; old.health != new.health || old.message != new.message {
			changed = append(changed, id)
		}
		t.known[id] = new
	}
	return changed
}

func newReport(d *healthpb.DeviceHealth, now time.Time) report {
	r := report{health: corev1.ResourceHealthStatusUnknown, message: cut(d.GetMessage())}
	switch d.GetHealth() {
	case healthpb.HealthStatus_HEALTHY:
		r.health = corev1.ResourceHealthStatusHealthy
	case healthpb.HealthStatus_UNHEALTHY:
		r.health = corev1.ResourceHealthStatusUnhealthy
	}
	timeout := defaultHealthTimeout
	if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
		timeout = time.Duration(min(s, int64(maxHealthTimeout/time.Second))) * time.Second
	}
	r.until = now.Add(timeout)
	return r
}

// cut makes a message as short as the API requires, between two characters.
func cut(message string) string {
	if len(message) <= corev1.ResourceHealthMessageMaxLength {
		return message
	}
	end := corev1.ResourceHealthMessageMaxLength - len("...")
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "..."
}

// expire forgets reports that no longer hold. It returns their devices and when the next report
// ceases to hold; zero: there is none.
func (t *healthTable) expire(now time.Time) (expired []deviceID, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, r := range t.known {
		switch {
		case !now.Before(r.until):
			delete(t.known, id)
			expired = append(expired, id)
		case next.IsZero() || r.until.Before(next):
			next = r.until
		}
	}
	return expired, next
}

// healthClientOf returns a client of the newest version of the health service that the plugin
// serves; nil if it serves none.
func healthClientOf(p *plugin) healthpb.DRAResourceHealthClient {
	switch {
	case slices.Contains(p.Versions, healthpb.DRAResourceHealthService):
		return healthpb.NewDRAResourceHealthClient(p.conn)
	case slices.Contains(p.Versions, healthv1alpha1.DRAResourceHealthService):
		return healthpb.V1Alpha1ClientWrapper{Client: healthv1alpha1.NewDRAResourceHealthClient(p.conn)}
	}
	return nil
}

// watchHealth records what a plugin says about the health of its devices, until it is forgotten
// or ctx ends.
func (m *Manager) watchHealth(ctx context.Context, p *plugin) {
	client := healthClientOf(p)
	if client == nil {
		return
	}
	retry := backoff.Backoff{Initial: 200 * time.Millisecond, Max: reconnect}
	for {
		err := m.readHealth(ctx, p, client, &retry)
		if ctx.Err() != nil || p.conn.GetState() == connectivity.Shutdown {
			return
		}
		if status.Code(err) == codes.Unimplemented {
			m.Log.Info("the DRA driver does not report the health of devices", "driver", p.Name, "answer", err)
			return
		}
		m.Log.Warn("watching the health of devices failed; trying again", "driver", p.Name, "error", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

func (m *Manager) readHealth(ctx context.Context, p *plugin, client healthpb.DRAResourceHealthClient, retry *backoff.Backoff) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.NodeWatchResources(ctx, &healthpb.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		retry.Reset()
		m.tell(m.health.take(p.Name, r.GetDevices(), time.Now()))
		m.poke() // Run waits for the next report that expires
	}
}

// expireHealth makes the health of devices unknown of which their drivers have said nothing for
// too long. It returns when to call it again; zero: when a driver says something.
func (m *Manager) expireHealth() time.Time {
	expired, next := m.health.expire(time.Now())
	m.tell(expired)
	return next
}

// tell reports the pods that have some of the devices.
func (m *Manager) tell(devices []deviceID) {
	if len(devices) == 0 {
		return
	}
	changed := make(map[deviceID]bool, len(devices))
	for _, d := range devices {
		changed[d] = true
	}
	m.mu.Lock()
	var pods []types.UID
	for _, c := range m.claims {
		if slices.ContainsFunc(c.devices(""), func(d driven) bool { return changed[d.id()] }) {
			pods = append(pods, c.Pods...)
		}
	}
	m.mu.Unlock()
	if len(pods) > 0 {
		m.changedHealth(pods)
	}
}

func (d driven) id() deviceID { return deviceID{d.driver, d.Pool, d.Name} }

// Health returns the health of the devices that a container has by its claims, for its status in
// the API; nil if it has none.
func (m *Manager) Health(pod *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	list, err := wishes(pod, c)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []corev1.ResourceStatus
	for _, w := range list {
		held := m.findLocked(pod, w.claim)
		if held == nil || !held.prepared() {
			continue
		}
		s := corev1.ResourceStatus{Name: w.resource()}
		for _, d := range held.devices(w.request) {
			id := corev1.ResourceID(d.id().String())
			if slices.ContainsFunc(s.Resources, func(r corev1.ResourceHealth) bool { return r.ResourceID == id }) {
				continue // it has several shares of it
			}
			r := m.health.of(d.id())
			h := corev1.ResourceHealth{ResourceID: id, Health: r.health}
			if r.message != "" {
				h.Message = &r.message
			}
			s.Resources = append(s.Resources, h)
		}
		out = append(out, s)
	}
	return out
}
