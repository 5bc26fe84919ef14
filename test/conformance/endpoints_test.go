package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

// endpointRows returns the rows of Endpoints and EndpointSlices.
func endpointRows() []testcase {
	return []testcase{
		{id: "endpoints-empty-service", test: emptyEndpoints},
		{id: "endpoints-for-pods", test: podEndpoints},
		{id: "endpoints-lifecycle", test: endpointsLifecycle},
		{id: "endpointslice-api", test: sliceAPI},
		{id: "endpointslice-empty-service", test: emptySlices},
		{id: "endpointslice-endpoints-for-pods", test: podSlices},
		{id: "endpointslice-mirroring", test: mirroring},
		{id: "endpointslice-multi-ip", test: handMade(2, 1)},
		{id: "endpointslice-multi-port", test: handMade(1, 2)},
		{id: "kubernetes-default-endpoints", test: kubernetesEndpoints},
	}
}

// slicesOf returns the EndpointSlices of a Service.
func slicesOf(ctx context.Context, namespace, service string) ([]discovery.EndpointSlice, error) {
	list, err := admin.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func emptyEndpoints(t *testing.T, ctx context.Context, namespace string) {
	createService(t, ctx, namespace, service("svc", "svc"))
	endpointsAre(t, ctx, namespace, "svc")
	check(t, admin.CoreV1().Services(namespace).Delete(ctx, "svc", metav1.DeleteOptions{}))
	noEndpoints(t, ctx, namespace, "svc")
}

func noEndpoints(t *testing.T, ctx context.Context, namespace, name string) {
	t.Helper()
	eventually(t, ctx, "the Endpoints are gone", func() error {
		_, err := admin.CoreV1().Endpoints(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("they are there (%v)", err)
	})
}

func noSlices(t *testing.T, ctx context.Context, namespace, name string) {
	t.Helper()
	eventually(t, ctx, "the EndpointSlices are gone", func() error {
		list, err := slicesOf(ctx, namespace, name)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("%d are left", len(list))
		}
		return err
	})
}

func podEndpoints(t *testing.T, ctx context.Context, namespace string) {
	createService(t, ctx, namespace, service("svc", "svc"))
	pods := ready(t, ctx, server(namespace, "first", map[string]string{"app": "svc"}), server(namespace, "second", map[string]string{"app": "svc"}))
	endpointsAre(t, ctx, namespace, "svc", pods...)
	e, err := admin.CoreV1().Endpoints(namespace).Get(ctx, "svc", metav1.GetOptions{})
	check(t, err)
	if ports := e.Subsets[0].Ports; len(ports) != 1 || ports[0].Port != httpPort || ports[0].Name != "http" || ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("the ports are %+v", e.Subsets[0].Ports)
	}
	for _, a := range e.Subsets[0].Addresses {
		if a.TargetRef == nil || a.TargetRef.Kind != "Pod" || a.TargetRef.Namespace != namespace {
			t.Errorf("the target of %s is %+v", a.IP, a.TargetRef)
		}
	}
	check(t, admin.CoreV1().Services(namespace).Delete(ctx, "svc", metav1.DeleteOptions{}))
	noEndpoints(t, ctx, namespace, "svc")
}

func endpointsLifecycle(t *testing.T, ctx context.Context, namespace string) {
	endpoints, labels := admin.CoreV1().Endpoints(namespace), metav1.ListOptions{LabelSelector: "test=" + namespace}
	w, err := endpoints.Watch(ctx, labels)
	check(t, err)
	defer w.Stop()
	_, err = endpoints.Create(ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "object", Labels: map[string]string{"test": namespace}},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.24"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}},
	}, metav1.CreateOptions{})
	check(t, err)
	made := sees[*corev1.Endpoints](t, ctx, w, watch.Added, nil)
	list, err := admin.CoreV1().Endpoints("").List(ctx, labels)
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Namespace != namespace {
		t.Errorf("the list has %d objects", len(list.Items))
	}
	made.Labels["updated"] = "true"
	_, err = endpoints.Update(ctx, made, metav1.UpdateOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(e *corev1.Endpoints) bool { return e.Labels["updated"] == "true" })
	_, err = endpoints.Patch(ctx, "object", types.StrategicMergePatchType, []byte(`{"subsets":[{"addresses":[{"ip":"10.0.0.25"}],"ports":[{"name":"http-test","port":8080,"protocol":"TCP"}]}]}`), metav1.PatchOptions{})
	check(t, err)
	sees(t, ctx, w, watch.Modified, func(e *corev1.Endpoints) bool {
		return len(e.Subsets) == 1 && e.Subsets[0].Addresses[0].IP == "10.0.0.25" && e.Subsets[0].Ports[0].Port == 8080
	})
	check(t, endpoints.DeleteCollection(ctx, metav1.DeleteOptions{}, labels))
	sees[*corev1.Endpoints](t, ctx, w, watch.Deleted, nil)
}

func sliceAPI(t *testing.T, ctx context.Context, namespace string) {
	inDiscovery(t, "discovery.k8s.io/v1", "endpointslices")
	labels := map[string]string{"test": namespace}
	crud(t, ctx, crudOf[*discovery.EndpointSlice, *discovery.EndpointSliceList]{
		client: admin.DiscoveryV1().EndpointSlices(namespace), all: admin.DiscoveryV1().EndpointSlices(""), labels: labels,
		object: func(name string) *discovery.EndpointSlice {
			return &discovery.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, AddressType: discovery.AddressTypeIPv4,
				Endpoints: []discovery.Endpoint{{Addresses: []string{"1.2.3.4", "5.6.7.8"}}},
			}
		},
		count: func(list *discovery.EndpointSliceList) int { return len(list.Items) },
	})
}

func emptySlices(t *testing.T, ctx context.Context, namespace string) {
	createService(t, ctx, namespace, service("svc", "svc"))
	eventually(t, ctx, "there is one EndpointSlice without endpoints", func() error {
		list, err := slicesOf(ctx, namespace, "svc")
		if err == nil && (len(list) != 1 || len(list[0].Endpoints) != 0) {
			err = fmt.Errorf("there are %d", len(list))
		}
		return err
	})
	check(t, admin.CoreV1().Services(namespace).Delete(ctx, "svc", metav1.DeleteOptions{}))
	noSlices(t, ctx, namespace, "svc")
}

// podSlices has two Services: one for a pod by the number of its port, one for
// both pods by its name.
func podSlices(t *testing.T, ctx context.Context, namespace string) {
	pods := ready(t, ctx,
		server(namespace, "first", map[string]string{"app": "svc", "only": "first"}), server(namespace, "second", map[string]string{"app": "svc"}))
	one, both := service("one", "svc"), service("both", "svc")
	one.Spec.Selector["only"] = "first"
	both.Spec.Ports[0].TargetPort = intstr.FromString("http")
	createService(t, ctx, namespace, one)
	createService(t, ctx, namespace, both)
	has := func(name string, want ...*corev1.Pod) {
		t.Helper()
		eventually(t, ctx, "the EndpointSlices of "+name, func() error {
			list, err := slicesOf(ctx, namespace, name)
			if err != nil {
				return err
			}
			got := map[string]string{}
			for _, s := range list {
				if s.Labels[discovery.LabelManagedBy] == "" || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Name != name {
					return fmt.Errorf("labels %v, owners %v", s.Labels, s.OwnerReferences)
				}
				if len(s.Endpoints) > 0 && (len(s.Ports) != 1 || *s.Ports[0].Port != httpPort || *s.Ports[0].Name != "http") {
					return fmt.Errorf("ports %+v", s.Ports)
				}
				for _, e := range s.Endpoints {
					if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
						got[e.TargetRef.Name] = e.Addresses[0]
					}
				}
			}
			for _, pod := range want {
				if len(got) != len(want) || got[pod.Name] != pod.Status.PodIP {
					return fmt.Errorf("the ready endpoints are %v", got)
				}
			}
			return nil
		})
	}
	has("one", pods[0])
	has("both", pods...)
	for _, name := range []string{"one", "both"} {
		check(t, admin.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
		noSlices(t, ctx, namespace, name)
	}
}

func mirroring(t *testing.T, ctx context.Context, namespace string) {
	s := service("svc", "")
	s.Spec.Selector = nil
	createService(t, ctx, namespace, s)
	endpoints := admin.CoreV1().Endpoints(namespace)
	made, err := endpoints.Create(ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "svc"},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.1.2.3"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 80}}}},
	}, metav1.CreateOptions{})
	check(t, err)
	mirrors := func(ip string) {
		t.Helper()
		eventually(t, ctx, "the EndpointSlice mirrors "+ip, func() error {
			list, err := slicesOf(ctx, namespace, "svc")
			if err == nil && (len(list) != 1 || len(list[0].Endpoints) != 1 || list[0].Endpoints[0].Addresses[0] != ip || *list[0].Ports[0].Port != 80) {
				err = fmt.Errorf("there are %+v", list)
			}
			return err
		})
	}
	mirrors("10.1.2.3")
	made.Subsets[0].Addresses[0].IP = "10.2.3.4"
	_, err = endpoints.Update(ctx, made, metav1.UpdateOptions{})
	check(t, err)
	mirrors("10.2.3.4")
	check(t, endpoints.Delete(ctx, "svc", metav1.DeleteOptions{}))
	noSlices(t, ctx, namespace, "svc")
}

// handMade has a Service without selector and EndpointSlices made by hand, for
// so many pods with so many ports each.
func handMade(pods, ports int) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		from := asker(t, ctx, namespace)
		s := service("svc", "")
		s.Spec.Selector, s.Spec.Ports = nil, nil
		for i := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("port%d", i), Port: int32(80 + i)})
		}
		s = createService(t, ctx, namespace, s)
		var names []string
		for p := range pods {
			pod := ready(t, ctx, server(namespace, fmt.Sprintf("pod-%d", p), nil))[0]
			names = append(names, pod.Name)
			for i := range ports {
				_, err := admin.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discovery.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("svc-%d-%d", p, i), Labels: map[string]string{discovery.LabelServiceName: "svc", discovery.LabelManagedBy: "e2e"}},
					AddressType: discovery.AddressTypeIPv4,
					Endpoints:   []discovery.Endpoint{{Addresses: []string{pod.Status.PodIP}}},
					Ports:       []discovery.EndpointPort{{Name: ptr(fmt.Sprintf("port%d", i)), Port: ptr(int32(httpPort)), Protocol: ptr(corev1.ProtocolTCP)}},
				}, metav1.CreateOptions{})
				check(t, err)
			}
		}
		for i := range ports {
			getsFrom(t, ctx, from, s.Spec.ClusterIP, int32(80+i), names...)
		}
	}
}

func kubernetesEndpoints(t *testing.T, ctx context.Context, _ string) {
	e, err := admin.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	check(t, err)
	list, err := slicesOf(ctx, "default", "kubernetes")
	check(t, err)
	var ofEndpoints, ofSlices []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			for _, p := range s.Ports {
				ofEndpoints = append(ofEndpoints, fmt.Sprintf("%s:%d", a.IP, p.Port))
			}
		}
	}
	for _, s := range list {
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				ofSlices = append(ofSlices, fmt.Sprintf("%s:%d", strings.Join(e.Addresses, ","), *p.Port))
			}
		}
	}
	slices.Sort(ofEndpoints)
	slices.Sort(ofSlices)
	if len(ofEndpoints) == 0 || !slices.Equal(ofEndpoints, ofSlices) {
		t.Errorf("Endpoints list %q, EndpointSlices %q", ofEndpoints, ofSlices)
	}
}
