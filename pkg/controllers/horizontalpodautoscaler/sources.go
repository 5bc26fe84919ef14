package horizontalpodautoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	custombeta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	custombeta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client"
	"podium/pkg/client/discovery"
)

// sample is the value of a metric for one pod, in thousandths.
type sample struct {
	milli  int64
	at     time.Time
	window time.Duration // over which it was measured, before at
}

// sources reads metrics from the aggregated APIs of metrics. It is safe for concurrent use.
type sources struct {
	client *client.Client
	kinds  *discovery.Resolver

	mu      sync.Mutex
	custom  string    // the served version of custom.metrics.k8s.io
	checked time.Time // when custom was read
}

// customFor is how long the version of custom.metrics.k8s.io is taken to be served.
const customFor = 30 * time.Second

// defaultWindow is the window of custom metrics that name none.
const defaultWindow = time.Minute

// read reads one metric of an autoscaler whose target has the selected pods.
func (s *sources) read(ctx context.Context, namespace string, pods labels.Selector, m *autoscalingv2.MetricSpec) (r reading) {
	began := time.Now()
	switch {
	case m.Resource != nil:
		r.samples, r.err = s.resource(ctx, namespace, pods, m.Resource.Name, "")
	case m.ContainerResource != nil:
		r.samples, r.err = s.resource(ctx, namespace, pods, m.ContainerResource.Name, m.ContainerResource.Container)
	case m.Pods != nil:
		r.samples, r.err = s.ofPods(ctx, namespace, pods, &m.Pods.Metric)
	case m.Object != nil:
		r.value, r.err = s.ofObject(ctx, namespace, m.Object.DescribedObject, &m.Object.Metric)
	case m.External != nil:
		r.value, r.err = s.external(ctx, namespace, &m.External.Metric)
	}
	r.took = time.Since(began)
	return r
}

// resource returns what each pod uses of a resource: the sum of its containers or, unless
// container is "", one of them. A pod without a value for all of its containers is absent.
func (s *sources) resource(ctx context.Context, namespace string, pods labels.Selector, name corev1.ResourceName, container string) (map[string]sample, error) {
	list := &metricsv1beta1.PodMetricsList{}
	path := "/apis/metrics.k8s.io/v1beta1/namespaces/" + url.PathEscape(namespace) + "/pods"
	if err := s.get(ctx, path, url.Values{"labelSelector": {pods.String()}}, list); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	out := map[string]sample{}
	for i := range list.Items {
		m := &list.Items[i]
		value, complete := used(m, name)
		if container != "" {
			var found bool
			if value, found, complete = usedBy(m, name, container); !found {
				return nil, fmt.Errorf("failed to get container metrics: container %s not present in metrics for pod %s/%s", container, m.Namespace, m.Name)
			}
		}
		if complete {
			out[m.Name] = sample{value, m.Timestamp.Time, m.Window.Duration}
		}
	}
	return out, nil
}

// used returns the sum over the containers of a pod, false if one of them has no value.
func used(m *metricsv1beta1.PodMetrics, name corev1.ResourceName) (milli int64, complete bool) {
	for _, c := range m.Containers {
		q, ok := c.Usage[name]
		if !ok {
			return 0, false
		}
		milli += q.MilliValue()
	}
	return milli, len(m.Containers) > 0
}

func usedBy(m *metricsv1beta1.PodMetrics, name corev1.ResourceName, container string) (milli int64, found, complete bool) {
	for _, c := range m.Containers {
		if c.Name == container {
			q, ok := c.Usage[name]
			return q.MilliValue(), true, ok
		}
	}
	return 0, false, false
}

// ofPods returns the values of a custom metric for the selected pods.
func (s *sources) ofPods(ctx context.Context, namespace string, pods labels.Selector, m *autoscalingv2.MetricIdentifier) (map[string]sample, error) {
	values, err := s.customMetric(ctx, "namespaces/"+url.PathEscape(namespace)+"/pods/*/", pods, m)
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	out := map[string]sample{}
	for _, v := range values {
		window := defaultWindow
		if v.WindowSeconds != nil {
			window = time.Duration(*v.WindowSeconds) * time.Second
		}
		out[v.DescribedObject.Name] = sample{v.Value.MilliValue(), v.Timestamp.Time, window}
	}
	return out, nil
}

// ofObject returns the value of a custom metric for one object, in thousandths.
func (s *sources) ofObject(ctx context.Context, namespace string, of autoscalingv2.CrossVersionObjectReference, m *autoscalingv2.MetricIdentifier) (int64, error) {
	kind := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind)
	path := "namespaces/" + url.PathEscape(namespace) + "/metrics/" // of the namespace itself
	if kind.GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
		r, err := s.kinds.Resource(ctx, kind)
		if err != nil {
			return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
		}
		path = "namespaces/" + url.PathEscape(namespace) + "/" + r.GVR().GroupResource().String() + "/" + url.PathEscape(of.Name) + "/"
	}
	values, err := s.customMetric(ctx, path, nil, m)
	if err != nil {
		return 0, err
	}
	if len(values) != 1 {
		return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: the custom metrics API server returned %d results when we asked for exactly one", len(values))
	}
	return values[0].Value.MilliValue(), nil
}

// customMetric reads a custom metric of the objects at a path.
func (s *sources) customMetric(ctx context.Context, objects string, pods labels.Selector, m *autoscalingv2.MetricIdentifier) ([]custombeta2.MetricValue, error) {
	query := url.Values{}
	if pods != nil {
		query.Set("labelSelector", pods.String())
	}
	selector, err := metav1.LabelSelectorAsSelector(m.Selector)
	if err != nil {
		return nil, err
	}
	if m.Selector != nil && !selector.Empty() {
		query.Set("metricLabelSelector", selector.String())
	}
	version, err := s.customVersion(ctx)
	var values []custombeta2.MetricValue
	if err == nil {
		path := "/apis/" + custombeta2.GroupName + "/" + version + "/" + objects + url.PathEscape(m.Name)
		values, err = s.customValues(ctx, version, path, query)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	return values, nil
}

func (s *sources) customValues(ctx context.Context, version, path string, query url.Values) ([]custombeta2.MetricValue, error) {
	if version == custombeta2.SchemeGroupVersion.Version {
		list := &custombeta2.MetricValueList{}
		err := s.get(ctx, path, query, list)
		return list.Items, err
	}
	list := &custombeta1.MetricValueList{}
	err := s.get(ctx, path, query, list)
	var out []custombeta2.MetricValue
	for _, v := range list.Items {
		out = append(out, custombeta2.MetricValue{DescribedObject: v.DescribedObject, Timestamp: v.Timestamp, WindowSeconds: v.WindowSeconds, Value: v.Value})
	}
	return out, err
}

// customVersion returns the version of custom.metrics.k8s.io to ask for: v1beta2, unless
// only v1beta1 is served.
func (s *sources) customVersion(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.custom != "" && time.Since(s.checked) < customFor {
		return s.custom, nil
	}
	group := &metav1.APIGroup{}
	if err := s.get(ctx, "/apis/"+custombeta2.GroupName, nil, group); err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	serves := func(version string) bool {
		return slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version })
	}
	version := custombeta2.SchemeGroupVersion.Version
	if old := custombeta1.SchemeGroupVersion.Version; !serves(version) && serves(old) {
		version = old
	}
	s.custom, s.checked = version, time.Now()
	return version, nil
}

// external returns the sum of the values of a metric that belongs to no object of the
// cluster, in thousandths.
func (s *sources) external(ctx context.Context, namespace string, m *autoscalingv2.MetricIdentifier) (int64, error) {
	selector := labels.Everything()
	if m.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(m.Selector); err != nil {
			return 0, err
		}
	}
	list := &externalv1beta1.ExternalMetricValueList{}
	path := "/apis/external.metrics.k8s.io/v1beta1/namespaces/" + url.PathEscape(namespace) + "/" + url.PathEscape(m.Name)
	if err := s.get(ctx, path, url.Values{"labelSelector": {selector.String()}}, list); err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	var sum int64
	for _, v := range list.Items {
		sum += v.Value.MilliValue()
	}
	return sum, nil
}

func (s *sources) get(ctx context.Context, path string, query url.Values, out any) error {
	body, _, err := s.client.Do(ctx, client.Request{Path: path, Query: query, Header: http.Header{"Accept": {"application/json"}}})
	if err != nil {
		return err
	}
	return json.Unmarshal(body, out)
}
