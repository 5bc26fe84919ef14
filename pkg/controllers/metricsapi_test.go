package controllers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	custombeta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	custombeta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client"
	podstate "podium/pkg/controller/pods"
)

// metricsAPI is an API server of metrics behind the Service default/metrics. The running
// pods that a request selects share the load.
type metricsAPI struct {
	*cluster
	mu     sync.Mutex
	load   int64             // CPU of all pods together, in thousandths
	values map[string]string // of custom and external metrics, by the path behind the version
	asked  []string          // paths and queries of the requests for metrics
}

func (m *metricsAPI) set(load int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load = load
}

func (m *metricsAPI) setValue(path, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[path] = value
}

// was reports whether a request for a path and query was made.
func (m *metricsAPI) was(asked string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.asked, asked)
}

// serveMetrics starts the server, with an APIService for each group version.
func (c *cluster) serveMetrics(groupVersions ...string) *metricsAPI {
	m := &metricsAPI{cluster: c, values: map[string]string{}}
	c.background(m.run)
	create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}})
	create(c, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "metrics-1", Labels: map[string]string{discoveryv1.LabelServiceName: "metrics"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}}},
	})
	for _, gv := range groupVersions {
		group, version, _ := strings.Cut(gv, "/")
		create(c, &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: version + "." + group}, Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "metrics"},
		}})
		c.until(time.Minute, gv+" is available", func() bool {
			_, _, err := c.Do(context.Background(), client.Request{Path: "/apis/" + gv})
			return err == nil
		})
	}
	return m
}

func (m *metricsAPI) run(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	listener := tls.NewListener(m.remote, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	s := &http.Server{Handler: m}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func (m *metricsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := m.answer(r)
	if out == nil {
		w.WriteHeader(http.StatusNotFound)
		out = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "no such metric"}
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (m *metricsAPI) answer(r *http.Request) any {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) == 3 {
		return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: path[1] + "/" + path[2]}
	}
	if len(path) < 5 {
		return nil
	}
	m.mu.Lock()
	load, value := m.load, m.values[strings.Join(path[3:], "/")]
	m.asked = append(m.asked, r.URL.RequestURI())
	m.mu.Unlock()
	switch path[1] {
	case "metrics.k8s.io":
		return m.usage(r, path[4], load)
	case "custom.metrics.k8s.io":
		return m.custom(r, path, value)
	case "external.metrics.k8s.io":
		out := externalv1beta1.ExternalMetricValueList{}
		for part := range strings.SplitSeq(value, "+") {
			out.Items = append(out.Items, externalv1beta1.ExternalMetricValue{MetricName: path[5], Value: resource.MustParse(part)})
		}
		return out
	}
	return nil
}

// running returns the running pods that a request selects.
func (m *metricsAPI) running(r *http.Request, namespace string) []*corev1.Pod {
	list, err := client.For[*corev1.Pod](m.Client).In(namespace).List(r.Context(), metav1.ListOptions{LabelSelector: r.URL.Query().Get("labelSelector")})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list.Items, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || !podstate.Ready(p) })
}

func (m *metricsAPI) usage(r *http.Request, namespace string, load int64) any {
	pods := m.running(r, namespace)
	out := metricsv1beta1.PodMetricsList{}
	for _, p := range pods {
		out.Items = append(out.Items, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace}, Timestamp: metav1.Now(), Window: metav1.Duration{Duration: 10 * time.Second},
			Containers: []metricsv1beta1.ContainerMetrics{{Name: "main", Usage: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(load/int64(len(pods)), resource.DecimalSI),
			}}},
		})
	}
	return out
}

// custom answers namespaces/NAMESPACE/RESOURCE/NAME/METRIC and namespaces/NAMESPACE/metrics/METRIC.
func (m *metricsAPI) custom(r *http.Request, path []string, value string) any {
	var names []string
	if path[6] == "*" {
		for _, p := range m.running(r, path[4]) {
			names = append(names, p.Name)
		}
	} else if value != "" {
		names = []string{path[6]}
	}
	if value == "" {
		return nil
	}
	old, out := custombeta1.MetricValueList{}, custombeta2.MetricValueList{}
	for _, name := range names {
		of, q := corev1.ObjectReference{Name: name}, resource.MustParse(value)
		old.Items = append(old.Items, custombeta1.MetricValue{DescribedObject: of, Timestamp: metav1.Now(), Value: q})
		out.Items = append(out.Items, custombeta2.MetricValue{DescribedObject: of, Timestamp: metav1.Now(), Value: q})
	}
	if path[2] == "v1beta1" {
		return old
	}
	return out
}

func (m *metricsAPI) String() string { return fmt.Sprint(m.asked) }
