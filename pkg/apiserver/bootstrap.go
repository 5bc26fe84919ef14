package apiserver

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/apiserver/registry"
	"podium/pkg/backoff"
	"podium/pkg/scheme"
)

// The Service through which pods reach the API servers.
const (
	kubernetesService = "kubernetes"
	httpsPort         = 443
)

// systemNamespaces returns the namespaces of every cluster.
func systemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// The first attempts often fail while the store starts. After the first success
// the objects are checked periodically, since users may delete them.
const (
	bootstrapRetry    = 5 * time.Millisecond // doubled after each failure
	bootstrapMaxRetry = time.Second
	bootstrapEvery    = 10 * time.Second
)

// keepBootstrapped creates the objects that every cluster has (system
// namespaces, priority classes, default roles, those of flow control, the kubernetes Service and its endpoints) and
// recreates them when they are deleted. It blocks until ctx ends.
func (s *Server) keepBootstrapped(ctx context.Context) {
	retry, logged := backoff.Backoff{Initial: bootstrapRetry, Max: bootstrapMaxRetry}, ""
	for {
		err := s.ensureAll(ctx)
		wait := bootstrapEvery
		if err == nil {
			retry.Reset()
			logged = ""
		} else {
			wait = retry.Next()
			// Log a lasting error, and log it once.
			if ctx.Err() == nil && retry.AtMax() && err.Error() != logged {
				logged = err.Error()
				s.cfg.Log.Warn("bootstrap failed, retrying", "err", err)
			}
		}
		if old := s.bootstrap.Load(); err == nil || old == nil || *old != nil {
			s.bootstrap.Store(&err) // never unset: a later error does not make the server unready
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// bootstrapped returns nil once the objects of keepBootstrapped existed.
func (s *Server) bootstrapped() error {
	if err := s.bootstrap.Load(); err != nil {
		return *err
	}
	return errors.New("not finished")
}

// repairEvery is the interval between calls of Config.Repair.
const repairEvery = 3 * time.Minute

// keepRepaired calls Config.Repair periodically once the server has
// bootstrapped. It blocks until ctx ends.
func (s *Server) keepRepaired(ctx context.Context) {
	if s.cfg.Repair == nil {
		return
	}
	wait := bootstrapMaxRetry
	for backoff.Sleep(ctx, wait) == nil {
		if s.bootstrapped() != nil {
			continue
		}
		if err := s.cfg.Repair(ctx, s.api); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("repair of Services failed", "err", err)
		}
		wait = repairEvery
	}
}

// ensureAll creates or repairs the objects of keepBootstrapped once. It returns
// the first error.
func (s *Server) ensureAll(ctx context.Context) error {
	if err := s.feed.Ready(); err != nil {
		return err
	}
	for _, name := range systemNamespaces() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := s.ensure(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), ns); err != nil {
			return err
		}
	}
	for _, class := range registry.SystemPriorityClasses() {
		if err := s.ensure(ctx, schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), class); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{s.ensureRoles, s.ensureFairness, s.ensurePublished, s.ensureServiceCIDR, s.ensureTokenTracking} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if !s.cfg.Advertise.IsValid() {
		return nil
	}
	if s.cfg.ServiceCIDR.IsValid() {
		if err := s.ensure(ctx, corev1.SchemeGroupVersion.WithResource("services"), s.service()); err != nil {
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
		return nil // this server is shutting down and there is no other
	}
	return s.writeServers(ctx, addresses)
}

// ensureServiceCIDR creates the ServiceCIDR kubernetes and sets its condition Ready,
// which kube-controller-manager maintains from then on.
func (s *Server) ensureServiceCIDR(ctx context.Context) error {
	if !s.cfg.ServiceCIDR.IsValid() {
		return nil
	}
	want := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: kubernetesService},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{s.cfg.ServiceCIDR.Masked().String()}},
	}
	ready := metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes default Service CIDR is ready"}
	change := func(obj scheme.Object) bool {
		have := obj.(*networkingv1.ServiceCIDR)
		if !slices.Equal(have.Spec.CIDRs, want.Spec.CIDRs) {
			s.otherRange.Do(func() {
				s.cfg.Log.Warn("the default ServiceCIDR does not match the flag", "cidrs", have.Spec.CIDRs, "flag", want.Spec.CIDRs)
			})
			return false
		}
		return have.DeletionTimestamp == nil && meta.FindStatusCondition(have.Status.Conditions, ready.Type) == nil && meta.SetStatusCondition(&have.Status.Conditions, ready)
	}
	gvr := networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
	if have := s.api.Recent(ctx, gvr, "", want.Name); have != nil && !change(have.DeepCopyObject().(scheme.Object)) {
		return nil
	}
	if err := s.ensure(ctx, gvr, want); err != nil {
		return err
	}
	return s.shape(ctx, gvr, want, change)
}

// writeServers publishes the addresses of the API servers in discovery and in
// the Endpoints and EndpointSlice of the kubernetes Service. The caller holds
// s.telling.
func (s *Server) writeServers(ctx context.Context, addresses []netip.AddrPort) error {
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

// ensure creates an object if it does not exist. It does not change one that
// does.
func (s *Server) ensure(ctx context.Context, gvr schema.GroupVersionResource, obj scheme.Object) error {
	_, err := s.api.Get(ctx, gvr, obj.GetNamespace(), obj.GetName())
	if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err = s.api.Create(ctx, gvr, obj); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// service returns the Service default/kubernetes.
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
