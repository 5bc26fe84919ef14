// Package backends finds the pods behind a Service, for the server's own
// connections to Services: its proxy and webhooks.
package backends

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/scheme"
)

// Objects reads the cluster's objects.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error)
}

// Pick returns a random ready endpoint of a Service, the zero value if there is
// none. port is the number or the name of a port of the Service.
func Pick(ctx context.Context, o Objects, namespace, name, port string) (netip.AddrPort, error) {
	var none netip.AddrPort
	obj, err := o.Get(ctx, corev1.SchemeGroupVersion.WithResource("services"), namespace, name)
	if err != nil {
		return none, err
	}
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return none, fmt.Errorf("service %s/%s is a %T", namespace, name, obj)
	}
	if number, err := strconv.ParseInt(port, 10, 32); err == nil {
		if port, err = portName(svc, int32(number)); err != nil {
			return none, err
		}
	}
	slices, err := o.List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), namespace)
	if err != nil {
		return none, err
	}
	var ready []netip.AddrPort
	for _, obj := range slices {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == name {
			ready = append(ready, Endpoints(slice, port)...)
		}
	}
	if len(ready) == 0 {
		return none, nil
	}
	return ready[rand.IntN(len(ready))], nil
}

// portName returns the name of a Service's port, by which EndpointSlices refer
// to it.
func portName(svc *corev1.Service, number int32) (string, error) {
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].Port == number {
			return svc.Spec.Ports[i].Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, svc.Name))
}

// Endpoints returns a slice's ready addresses on the port with the given name.
func Endpoints(slice *discoveryv1.EndpointSlice, port string) []netip.AddrPort {
	var number uint16
	for _, sp := range slice.Ports {
		if sp.Port != nil && (sp.Name == nil && port == "" || sp.Name != nil && *sp.Name == port) {
			number = uint16(*sp.Port)
		}
	}
	if number == 0 {
		return nil
	}
	var out []netip.AddrPort
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		if ep.Conditions.Ready != nil && !*ep.Conditions.Ready || len(ep.Addresses) == 0 {
			continue
		}
		if a, err := netip.ParseAddr(ep.Addresses[0]); err == nil {
			out = append(out, netip.AddrPortFrom(a, number))
		}
	}
	return out
}
