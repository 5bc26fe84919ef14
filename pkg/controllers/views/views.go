package views

import (
	"context"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/scheme"
)

// The indexes.
const (
	byController = "controller" // uid of the controller; "" + namespace for objects without one
	byNode       = "node"       // the node a pod is bound to
	byLabel      = "label"      // namespace/key=value of each label
	bySelector   = "selector"   // services: namespace/key=value of the selector's first pair
	byService    = "service"    // endpoint slices: namespace/name of the service
	byRequester  = "requester"  // certificate signing requests: the user who asks
)

// Views are the informers. Those of one process are built once, given to the
// controllers, and run after all of these have said what they listen to.
type Views struct {
	Pods            *informer.Informer[*corev1.Pod]
	Services        *informer.Informer[*corev1.Service]
	Endpoints       *informer.Informer[*corev1.Endpoints]
	EndpointSlices  *informer.Informer[*discoveryv1.EndpointSlice]
	ReplicaSets     *informer.Informer[*appsv1.ReplicaSet]
	Deployments     *informer.Informer[*appsv1.Deployment]
	Nodes           *informer.Informer[*corev1.Node]
	Namespaces      *informer.Informer[*corev1.Namespace]
	ServiceAccounts *informer.Informer[*corev1.ServiceAccount]
	RootCAs         *informer.Informer[*corev1.ConfigMap] // only those named RootCAName
	ClusterRoles    *informer.Informer[*rbacv1.ClusterRole]
	NodeLeases      *informer.Informer[*coordinationv1.Lease]
	CSRs            *informer.Informer[*certificatesv1.CertificateSigningRequest]

	running []view
}

// RootCAName is the ConfigMap in each namespace that holds the cluster's CA.
const RootCAName = "kube-root-ca.crt"

// Cloud builds those that the controllers of cloud-controller-manager read;
// the others are nil.
func Cloud(c *client.Client, log *slog.Logger) *Views {
	v := &Views{Nodes: all[*corev1.Node](c, log), Services: all[*corev1.Service](c, log)}
	v.running = []view{v.Nodes, v.Services}
	return v
}

// New builds the informers, all of them; nothing runs yet.
func New(c *client.Client, log *slog.Logger) *Views {
	v := &Views{
		Pods:            all[*corev1.Pod](c, log),
		Services:        all[*corev1.Service](c, log),
		Endpoints:       all[*corev1.Endpoints](c, log),
		EndpointSlices:  all[*discoveryv1.EndpointSlice](c, log),
		ReplicaSets:     all[*appsv1.ReplicaSet](c, log),
		Deployments:     all[*appsv1.Deployment](c, log),
		Nodes:           all[*corev1.Node](c, log),
		ClusterRoles:    all[*rbacv1.ClusterRole](c, log),
		Namespaces:      all[*corev1.Namespace](c, log),
		ServiceAccounts: all[*corev1.ServiceAccount](c, log),
		RootCAs: informer.New(client.For[*corev1.ConfigMap](c), informer.Options{
			FieldSelector: "metadata.name=" + RootCAName, Log: log, Transform: strip}),
		NodeLeases: informer.New(client.For[*coordinationv1.Lease](c).In(corev1.NamespaceNodeLease), informer.Options{
			Log: log, Transform: strip}),
		CSRs: all[*certificatesv1.CertificateSigningRequest](c, log),
	}
	v.Pods.Index(byController, controllerOf)
	v.Pods.Index(byNode, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	v.Pods.Index(byLabel, func(p *corev1.Pod) []string { return pairs(p.Namespace, p.Labels) })
	v.ReplicaSets.Index(byController, controllerOf)
	v.Services.Index(bySelector, func(s *corev1.Service) []string {
		return pairs(s.Namespace, s.Spec.Selector)[:min(1, len(s.Spec.Selector))]
	})
	v.EndpointSlices.Index(byService, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	v.CSRs.Index(byRequester, func(c *certificatesv1.CertificateSigningRequest) []string { return []string{c.Spec.Username} })
	v.running = []view{
		v.Pods, v.Services, v.Endpoints, v.EndpointSlices, v.ReplicaSets, v.Deployments,
		v.Nodes, v.Namespaces, v.ServiceAccounts, v.RootCAs, v.NodeLeases, v.CSRs, v.ClusterRoles,
	}
	return v
}

// CSRsOf lists the certificate signing requests of a user.
func (v *Views) CSRsOf(user string) []*certificatesv1.CertificateSigningRequest {
	return v.CSRs.By(byRequester, user)
}

func all[T scheme.Object](c *client.Client, log *slog.Logger) *informer.Informer[T] {
	return informer.New(client.For[T](c), informer.Options{Log: log, Transform: strip})
}

// strip drops what no controller reads and many objects have.
func strip(obj scheme.Object) { obj.SetManagedFields(nil) }

// view is an informer of any kind.
type view interface {
	Run(ctx context.Context) error
	Synced() bool
}

// Run keeps the informers up to date until ctx ends.
func (v *Views) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, i := range v.running {
		g.Go(func() error { return i.Run(ctx) })
	}
	return g.Wait()
}

// Synced holds once every informer has its first list.
func (v *Views) Synced() bool {
	for _, i := range v.running {
		if !i.Synced() {
			return false
		}
	}
	return true
}

// PodsOwnedBy lists the pods whose controller has this uid.
func (v *Views) PodsOwnedBy(uid types.UID) []*corev1.Pod {
	return v.Pods.By(byController, string(uid))
}

// OrphanPods lists a namespace's pods without a controller.
func (v *Views) OrphanPods(namespace string) []*corev1.Pod {
	return v.Pods.By(byController, "/"+namespace)
}

// PodsOn lists the pods bound to a node; "" for those bound to none.
func (v *Views) PodsOn(node string) []*corev1.Pod { return v.Pods.By(byNode, node) }

// PodsMatching lists a namespace's pods that have all these labels, one or more.
func (v *Views) PodsMatching(namespace string, selector map[string]string) []*corev1.Pod {
	var fewest []*corev1.Pod
	for i, pair := range pairs(namespace, selector) {
		found := v.Pods.By(byLabel, pair)
		if i == 0 || len(found) < len(fewest) {
			fewest = found
		}
	}
	if len(selector) == 1 {
		return fewest
	}
	return slices.DeleteFunc(fewest, func(p *corev1.Pod) bool { return !matches(selector, p.Labels) })
}

// ServicesSelecting lists the services whose selector matches these labels.
func (v *Views) ServicesSelecting(namespace string, labels map[string]string) []*corev1.Service {
	var found []*corev1.Service
	for _, pair := range pairs(namespace, labels) {
		for _, s := range v.Services.By(bySelector, pair) {
			if matches(s.Spec.Selector, labels) {
				found = append(found, s)
			}
		}
	}
	return found
}

// SlicesOf lists a service's endpoint slices, whoever manages them.
func (v *Views) SlicesOf(namespace, service string) []*discoveryv1.EndpointSlice {
	return v.EndpointSlices.By(byService, namespace+"/"+service)
}

// ReplicaSetsOwnedBy lists the replica sets whose controller has this uid.
func (v *Views) ReplicaSetsOwnedBy(uid types.UID) []*appsv1.ReplicaSet {
	return v.ReplicaSets.By(byController, string(uid))
}

// OrphanReplicaSets lists a namespace's replica sets without a controller.
func (v *Views) OrphanReplicaSets(namespace string) []*appsv1.ReplicaSet {
	return v.ReplicaSets.By(byController, "/"+namespace)
}

func controllerOf[T metav1.Object](obj T) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return []string{"/" + obj.GetNamespace()}
}

// pairs writes labels as index values, in order.
func pairs(namespace string, labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for k, v := range labels {
		out = append(out, namespace+"/"+k+"="+v)
	}
	slices.Sort(out)
	return out
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// WakeServices wakes the services that a changed pod stands behind, or stood;
// not when same says that the change does not matter.
func (v *Views) WakeServices(wake func(...types.NamespacedName), same func(old, new *corev1.Pod) bool) {
	of := func(p *corev1.Pod) {
		for _, s := range v.ServicesSelecting(p.Namespace, p.Labels) {
			wake(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
		}
	}
	v.Pods.OnChange(func(old, new *corev1.Pod) {
		if old != nil && new != nil && same(old, new) {
			return
		}
		if old != nil {
			of(old)
		}
		if new != nil {
			of(new)
		}
	})
}
