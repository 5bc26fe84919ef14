package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

const (
	manyServices = 2000
	manyBehind   = 10 // endpoints of each
)

func bigService(i int) *corev1.Service {
	ip := netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)}).String()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "scale", Name: fmt.Sprintf("s%d", i)},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func bigSlice(i int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "scale", Name: fmt.Sprintf("s%d-x", i), Labels: map[string]string{
			discoveryv1.LabelServiceName: fmt.Sprintf("s%d", i),
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for j := range manyBehind {
		n := i*manyBehind + j
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 244, byte(n / 250), byte(1 + n%250)}).String()}})
	}
	return s
}

// inOwnNetwork runs f on a thread in a new network namespace, which programs that f
// starts inherit. The thread ends with f.
func inOwnNetwork(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		h, err := netns.New()
		if err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		h.Close()
		done <- f()
	}()
	return <-done
}

// recorder is a Kernel that records the batches.
type recorder struct {
	iptables.Kernel
	batches [][]byte
}

func (r *recorder) Restore(ctx context.Context, batch []byte) error {
	r.batches = append(r.batches, batch)
	return r.Kernel.Restore(ctx, batch)
}

func newBigProxy(ctx context.Context, api *client.Client) (*Proxy, *recorder, error) {
	host, err := iptables.NewHost(services.IPv4)
	if err != nil {
		return nil, nil, err
	}
	kernel := &recorder{Kernel: host}
	p, err := New(Config{
		Node: "here", Client: api, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		Kernel: kernel, Conntrack: conntrack.Kernel{}, Rules: RuleOptions{ClusterCIDR: netip.MustParsePrefix("10.244.0.0/16")},
	})
	if err != nil {
		return nil, nil, err
	}
	if p.features, err = host.Features(ctx); err != nil {
		return nil, nil, err
	}
	go p.services.Run(ctx)
	go p.slices.Run(ctx)
	go p.node.Run(ctx)
	return p, kernel, p.waitSynced(ctx)
}

// syncTimes are the durations of the parts of a round.
type syncTimes struct{ bare, full, change time.Duration }

func timed(total *time.Duration, f func() error) error {
	began := time.Now()
	err := f()
	*total += time.Since(began)
	return err
}

// round measures once, starting with empty tables. number makes the changes of each
// round different.
func (t *syncTimes) round(ctx context.Context, api *client.Client, number int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var kernel *recorder
	err := inOwnNetwork(func() error {
		p, k, err := newBigProxy(ctx, api)
		if err != nil {
			return err
		}
		kernel = k
		p.pending.all()
		<-p.pending.wake
		if err := timed(&t.full, func() error { return p.sync(ctx) }); err != nil {
			return err
		}
		return t.changes(ctx, p, client.For[*discoveryv1.EndpointSlice](api), number)
	})
	if err != nil {
		return err
	}
	return inOwnNetwork(func() error {
		return timed(&t.bare, func() error { return kernel.Kernel.Restore(ctx, kernel.batches[0]) })
	})
}

// changes returns the mean duration of several changes, because one is short.
func (t *syncTimes) changes(ctx context.Context, p *Proxy, slices client.Resource[*discoveryv1.EndpointSlice], number int) error {
	const several = 5
	var all time.Duration
	for i := range several {
		s := bigSlice(7)
		s.Endpoints[3].Addresses[0] = fmt.Sprintf("10.245.%d.%d", number, i+1)
		if _, err := slices.Update(ctx, s); err != nil {
			return err
		}
		<-p.pending.wake
		if err := timed(&all, func() error { return p.sync(ctx) }); err != nil {
			return err
		}
	}
	t.change += all / several
	return nil
}

// BenchmarkSync compares, on this kernel, for 2,000 Services with 20,000 endpoints: an
// iptables-restore of the rules alone; a full sync from objects to rules in the kernel;
// and a sync after a change of one endpoint.
//
//	go test ./pkg/proxy -run '^$' -bench Sync -benchtime 1x
func BenchmarkSync(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root for a network namespace")
	}
	api := clienttest.New().Client(b)
	svcs, slices := client.For[*corev1.Service](api), client.For[*discoveryv1.EndpointSlice](api)
	for i := range manyServices {
		_, err := svcs.Create(b.Context(), bigService(i))
		if err == nil {
			_, err = slices.Create(b.Context(), bigSlice(i))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	var t syncTimes
	rounds := 0
	for b.Loop() {
		rounds++
		if err := t.round(b.Context(), api, rounds); err != nil {
			b.Fatal(err)
		}
	}
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(rounds) }
	b.ReportMetric(0, "ns/op") // the sum of the parts has no meaning
	b.ReportMetric(milliseconds(t.bare), "bare-ms")
	b.ReportMetric(milliseconds(t.full), "full-ms")
	b.ReportMetric(milliseconds(t.change), "change-ms")
	b.ReportMetric(float64(t.full)/float64(t.bare), "full/bare")
	b.ReportMetric(100*float64(t.change)/float64(t.full), "change-%-of-full")
}
