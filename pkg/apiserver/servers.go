package apiserver

//lint:file-ignore SA1019 Endpoints are deprecated, and old clients read them.

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// The API servers of a cluster find each other by Leases, each with the address
// of its server. The endpoints of the Service default/kubernetes are the
// addresses of the Leases that have not expired.
const (
	identityLabel     = "apiserver.kubernetes.io/identity"
	identityValue     = "kube-apiserver"
	addressAnnotation = "podium.dev/advertise-address"
	leaseSeconds      = 25 // two periods of bootstrapEvery, and some slack
)

// sighting records when this server first saw a Lease's current renew time.
// Expiry is judged by the local clock, since the servers' clocks may differ.
type sighting struct {
	renewed time.Time
	at      time.Time // by the local clock
}

// stale reports whether the Lease has not been renewed for its duration, as
// seen by this server. A Lease seen for the first time is not stale. The caller
// holds s.telling.
func (s *Server) stale(l *coordinationv1.Lease) bool {
	if l.Spec.RenewTime == nil {
		return true
	}
	now, seen := s.cfg.Now(), s.sightings[l.Name]
	if !seen.renewed.Equal(l.Spec.RenewTime.Time) {
		s.sightings[l.Name] = sighting{l.Spec.RenewTime.Time, now}
		return false
	}
	return now.Sub(seen.at) > leaseSeconds*time.Second
}

func leases() schema.GroupVersionResource {
	return coordinationv1.SchemeGroupVersion.WithResource("leases")
}

// presentServers renews this server's Lease, unless the server is shutting
// down, and returns the addresses of all live servers, sorted. The caller holds
// s.telling.
func (s *Server) presentServers(ctx context.Context) ([]netip.AddrPort, error) {
	var present []netip.AddrPort
	if !s.draining.Load() {
		if err := s.renew(ctx); err != nil {
			return nil, err
		}
		present = append(present, s.cfg.Advertise)
	}
	all, err := s.api.List(ctx, leases(), metav1.NamespaceSystem)
	if err != nil {
		return nil, err
	}
	for _, obj := range all {
		l := obj.(*coordinationv1.Lease)
		if l.Labels[identityLabel] != identityValue || s.stale(l) {
			continue
		}
		if a, err := netip.ParseAddrPort(l.Annotations[addressAnnotation]); err == nil {
			present = append(present, a)
		}
	}
	slices.SortFunc(present, netip.AddrPort.Compare)
	return slices.Compact(present), nil
}

// renew creates or renews this server's Lease.
func (s *Server) renew(ctx context.Context) error {
	name, err := s.identity()
	if err != nil {
		return err
	}
	now, seconds := metav1.NewMicroTime(s.cfg.Now()), int32(leaseSeconds)
	fill := func(l *coordinationv1.Lease) {
		if l.Labels == nil {
			l.Labels = map[string]string{}
		}
		if l.Annotations == nil {
			l.Annotations = map[string]string{}
		}
		l.Labels[identityLabel] = identityValue
		l.Annotations[addressAnnotation] = s.cfg.Advertise.String()
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &name, &seconds, &now
	}
	_, err = s.api.Update(ctx, leases(), metav1.NamespaceSystem, name, func(obj scheme.Object) error {
		fill(obj.(*coordinationv1.Lease))
		return nil
	})
	if !apierrors.IsNotFound(err) {
		return err
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}}
	fill(l)
	_, err = s.api.Create(ctx, leases(), l)
	return err
}

// leave deletes this server's Lease and removes its address from the endpoints.
// The address of the last server stays: clients wait for it to return.
func (s *Server) leave(ctx context.Context) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	name, err := s.identity()
	if err != nil {
		return err
	}
	if err := s.api.Delete(ctx, leases(), metav1.NamespaceSystem, name, &metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	others, err := s.presentServers(ctx)
	if err != nil || len(others) == 0 {
		return err
	}
	return s.writeServers(ctx, others)
}

// identity returns the name of this server's Lease.
func (s *Server) identity() (string, error) {
	if s.cfg.Identity != "" {
		return "apiserver-" + s.cfg.Identity, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this server: %w", err)
	}
	return "apiserver-" + host, nil
}

// ensureEndpoints reconciles the Endpoints of the kubernetes Service.
func (s *Server) ensureEndpoints(ctx context.Context, servers []netip.AddrPort) error {
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name: kubernetesService, Namespace: metav1.NamespaceDefault,
		Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
	}}
	for port, addresses := range byPort(servers) {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Port: int32(port), Protocol: corev1.ProtocolTCP}}}
		for _, a := range addresses {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a.String()})
		}
		want.Subsets = append(want.Subsets, subset)
	}
	slices.SortFunc(want.Subsets, func(a, b corev1.EndpointSubset) int { return int(a.Ports[0].Port - b.Ports[0].Port) })
	return s.shape(ctx, corev1.SchemeGroupVersion.WithResource("endpoints"), want, func(obj scheme.Object) bool {
		have := obj.(*corev1.Endpoints)
		if equality.Semantic.DeepEqual(have.Subsets, want.Subsets) {
			return false
		}
		have.Subsets = want.Subsets
		return true
	})
}

// ensureSlice reconciles its EndpointSlice. It includes only servers on the
// same port as this one, since all endpoints of a slice share their ports.
func (s *Server) ensureSlice(ctx context.Context, servers []netip.AddrPort) error {
	name, port, protocol, ready := "https", int32(s.cfg.Advertise.Port()), corev1.ProtocolTCP, true
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: kubernetesService, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: kubernetesService},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	if s.cfg.Advertise.Addr().Is6() {
		want.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, a := range byPort(servers)[s.cfg.Advertise.Port()] {
		want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s.shape(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), want, func(obj scheme.Object) bool {
		have := obj.(*discoveryv1.EndpointSlice)
		if equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) {
			return false
		}
		have.Endpoints, have.Ports = want.Endpoints, want.Ports
		return true
	})
}

// byPort groups addresses by port.
func byPort(servers []netip.AddrPort) map[uint16][]netip.Addr {
	out := map[uint16][]netip.Addr{}
	for _, a := range servers {
		out[a.Port()] = append(out[a.Port()], a.Addr())
	}
	return out
}

// shape creates want if it does not exist. Otherwise it calls change on the
// existing object, which modifies it and reports whether it did, and updates it
// in that case. change may be called more than once.
func (s *Server) shape(ctx context.Context, gvr schema.GroupVersionResource, want scheme.Object, change func(scheme.Object) bool) error {
	have, err := s.api.Get(ctx, gvr, want.GetNamespace(), want.GetName())
	switch {
	case apierrors.IsNotFound(err):
		_, err = s.api.Create(ctx, gvr, want)
		return err
	case err != nil:
		return err
	case !change(have):
		return nil
	}
	_, err = s.api.Update(ctx, gvr, want.GetNamespace(), want.GetName(), func(obj scheme.Object) error {
		change(obj)
		return nil
	})
	return err
}
