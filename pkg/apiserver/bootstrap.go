package apiserver

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/scheme"
)

// What every cluster has from the start.
const (
	kubernetesService = "kubernetes"
	httpsPort         = 443
)

func systemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// Errors of the first attempts are common (the store is starting); the present
// state is looked at now and then, since others may delete what must be there.
const (
	bootstrapRetry    = 5 * time.Millisecond // and then twice as long each time
	bootstrapMaxRetry = time.Second
	bootstrapEvery    = 10 * time.Second
)

// keepBootstrapped makes what every cluster has, and makes it again when it is
// gone, until ctx ends.
func (s *Server) keepBootstrapped(ctx context.Context) {
	retry, told := bootstrapRetry, ""
	for {
		err := s.ensureAll(ctx)
		wait := bootstrapEvery
		if err == nil {
			retry, told = bootstrapRetry, ""
		} else {
			wait, retry = retry, min(2*retry, bootstrapMaxRetry)
			// What lasts is told, once.
			if ctx.Err() == nil && wait == bootstrapMaxRetry && err.Error() != told {
				told = err.Error()
				s.cfg.Log.Warn("make what every cluster has", "err", err)
			}
		}
		if old := s.bootstrap.Load(); err == nil || old == nil || *old != nil {
			s.bootstrap.Store(&err) // once done it stays done: later trouble is not unreadiness
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

const repairEvery = 3 * time.Minute

// keepRepaired calls Repair, first when the server is up, until ctx ends.
func (s *Server) keepRepaired(ctx context.Context) {
	if s.cfg.Repair == nil {
		return
	}
	wait := bootstrapMaxRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := s.bootstrap.Load(); err == nil || *err != nil {
			continue
		}
		if err := s.cfg.Repair(ctx, s.api); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("repair what a crash may have left behind", "err", err)
		}
		wait = repairEvery
	}
}

func (s *Server) ensureAll(ctx context.Context) error {
	if err := s.feed.Ready(); err != nil {
		return err
	}
	for _, name := range systemNamespaces() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := s.ensure(ctx, "namespaces", ns); err != nil {
			return err
		}
	}
	if err := s.ensureRoles(ctx); err != nil {
		return err
	}
	if err := s.ensurePublished(ctx); err != nil {
		return err
	}
	if !s.cfg.Advertise.IsValid() {
		return nil
	}
	if s.cfg.ServiceCIDR.IsValid() {
		if err := s.ensure(ctx, "services", s.service()); err != nil {
			return err
		}
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	addresses, err := s.presentServers(ctx)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return nil // this one is about to end, and there is no other
	}
	return s.tellServers(ctx, addresses)
}

// tellServers lets everybody know where the servers are.
func (s *Server) tellServers(ctx context.Context, addresses []netip.AddrPort) error {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	s.disco.SetServers(texts)
	if err := s.ensureEndpoints(ctx, addresses); err != nil {
		return err
	}
	return s.ensureSlice(ctx, addresses)
}

// ensure creates a core object unless it is there.
func (s *Server) ensure(ctx context.Context, resource string, obj scheme.Object) error {
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	_, err := s.api.Get(ctx, gvr, obj.GetNamespace(), obj.GetName())
	if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err = s.api.Create(ctx, gvr, obj); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (s *Server) service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: kubernetesService, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       s.cfg.ServiceCIDR.Masked().Addr().Next().String(),
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: "https", Protocol: corev1.ProtocolTCP, Port: httpsPort, TargetPort: intstr.FromInt32(int32(s.cfg.Advertise.Port())),
			}},
		},
	}
}
