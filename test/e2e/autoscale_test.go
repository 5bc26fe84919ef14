package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client"
)

const autoscaled = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: burn}
spec:
  selector: {matchLabels: {app: burn}}
  template:
    metadata: {labels: {app: burn}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: localhost/podium/busybox:v1
        command: [sleep, "3600"]
        resources: {requests: {cpu: 10m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: burn}
spec:
  minReplicas: 1
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: burn}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: queue}
spec:
  selector: {matchLabels: {app: queue}}
  template:
    metadata: {labels: {app: queue}}
    spec:
      containers: [{name: main, image: "localhost/podium/web:v1"}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: queue}
spec:
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: queue}
  metrics:
  - {type: External, external: {metric: {name: length}, target: {type: AverageValue, averageValue: 10}}}
  - {type: Object, object: {metric: {name: hits}, describedObject: {apiVersion: apps/v1, kind: Deployment, name: queue}, target: {type: AverageValue, averageValue: 10}}}
`

// TestAutoscaling lets a container burn CPU: its Deployment grows to the maximum, and returns
// to one replica when the container is idle again. Another Deployment follows custom and
// external metrics.
func TestAutoscaling(t *testing.T) {
	s := newSpace(t)
	s.serveMetrics()
	s.apply(autoscaled)
	s.scaled("burn", "idle", 1)
	s.scaled("queue", "the queue has a length of 20", 2)

	pod := s.pods("app=burn")[0].Name
	the.podium(t, "-n", s.name, "exec", pod, "--", "sh", "-c", "while :; do :; done >/dev/null 2>&1 & echo $! > /tmp/pid")
	s.scaled("burn", "a container burns CPU", 3)
	the.podium(t, "-n", s.name, "exec", pod, "--", "sh", "-c", "kill $(cat /tmp/pid)")
	s.scaled("burn", "the container is idle again", 1)
}

// scaled waits until a Deployment has a number of replicas because of its metrics.
func (s *space) scaled(name, why string, want int32) {
	s.Helper()
	eventually(s.T, 3*time.Minute, fmt.Sprintf("%s has %d replicas: %s", name, want, why), func() error {
		d, err := in[*appsv1.Deployment](s).Get(s.Context(), name)
		if err != nil {
			return err
		}
		a, err := in[*autoscalingv2.HorizontalPodAutoscaler](s).Get(s.Context(), name)
		if err == nil && (*d.Spec.Replicas != want || a.Status.DesiredReplicas != want || len(a.Status.CurrentMetrics) == 0) {
			err = fmt.Errorf("it has %d, and the autoscaler says %+v", *d.Spec.Replicas, a.Status)
		}
		return err
	})
}

// serveMetrics registers this process as the API server of metrics. The usage of pods is that
// of the kubelet's summary, unless the cluster has a server of it.
func (s *space) serveMetrics() {
	s.Helper()
	listener, err := net.Listen("tcp", nodeIP+":0")
	if err != nil {
		s.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.answerMetrics))
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	s.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: metrics}
spec: {ports: [{name: https, port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-1, labels: {kubernetes.io/service-name: metrics}}
addressType: IPv4
ports: [{name: https, port: %s}]
endpoints: [{addresses: [%s]}]
`, port, nodeIP))
	services := client.For[*apiregistrationv1.APIService](s.api)
	for _, gv := range []string{"metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1"} {
		group, version, _ := strings.Cut(gv, "/")
		name := version + "." + group
		if _, err := services.Get(s.Context(), name); err != nil {
			_, err := services.Create(s.Context(), &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{
				Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
				Service: &apiregistrationv1.ServiceReference{Namespace: s.name, Name: "metrics"},
			}})
			if err != nil {
				s.Fatal(err)
			}
			s.Cleanup(func() { _ = services.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		}
		eventually(s.T, time.Minute, gv+" is available", func() error {
			_, _, err := s.api.Do(s.Context(), client.Request{Path: "/apis/" + gv})
			return err
		})
	}
}

func (s *space) answerMetrics(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var body string
	switch {
	case len(path) == 3:
		body = fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[]}`, path[1], path[2])
	case strings.HasSuffix(r.URL.Path, "/"+s.name+"/length"):
		body = fmt.Sprintf(`{"items":[{"metricName":"length","timestamp":%q,"value":"20"}]}`, time.Now().UTC().Format(time.RFC3339))
	case strings.HasSuffix(r.URL.Path, "/"+s.name+"/deployments.apps/queue/hits"):
		body = fmt.Sprintf(`{"items":[{"metric":{"name":"hits"},"timestamp":%q,"value":"5"}]}`, time.Now().UTC().Format(time.RFC3339))
	case len(path) == 6 && path[1] == "metrics.k8s.io" && path[5] == "pods":
		list, err := s.usage(r, path[4])
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	default:
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(body))
}

// usage returns what the selected pods use, by the kubelet's summary.
func (s *space) usage(r *http.Request, namespace string) (*metricsv1beta1.PodMetricsList, error) {
	pods, err := client.For[*corev1.Pod](s.api).In(namespace).List(r.Context(), metav1.ListOptions{LabelSelector: r.URL.Query().Get("labelSelector")})
	if err != nil {
		return nil, err
	}
	selected := map[string]bool{}
	for _, p := range pods.Items {
		selected[p.Name] = true
	}
	body, _, err := s.api.Do(r.Context(), client.Request{Path: "/api/v1/nodes/node-a/proxy/stats/summary"})
	if err != nil {
		return nil, err
	}
	var summary struct {
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []struct {
				Name string
				CPU  *struct {
					Time           metav1.Time
					UsageNanoCores *int64
				}
			}
		}
	}
	if err := json.Unmarshal(body, &summary); err != nil {
		return nil, err
	}
	out := &metricsv1beta1.PodMetricsList{}
	for _, p := range summary.Pods {
		if p.PodRef.Namespace != namespace || !selected[p.PodRef.Name] {
			continue
		}
		m := metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Name: p.PodRef.Name, Namespace: namespace}, Timestamp: metav1.Now(), Window: metav1.Duration{Duration: 10 * time.Second}}
		for _, c := range p.Containers {
			usage := corev1.ResourceList{}
			if c.CPU != nil && c.CPU.UsageNanoCores != nil {
				m.Timestamp = c.CPU.Time
				usage[corev1.ResourceCPU] = *resource.NewScaledQuantity(*c.CPU.UsageNanoCores, resource.Nano)
			}
			m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics{Name: c.Name, Usage: usage})
		}
		out.Items = append(out.Items, m)
	}
	return out, nil
}
