package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/conditions"
)

// autoscalerOf returns an autoscaler of a Deployment, from 1 to 6 replicas that use half of
// the CPU they request.
func autoscalerOf(deployment string, change ...func(*autoscalingv2.HorizontalPodAutoscalerSpec)) *autoscalingv2.HorizontalPodAutoscaler {
	a := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: deployment}}
	a.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment},
		MinReplicas:    new(int32(1)), MaxReplicas: 6,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
		}}},
	}
	for _, f := range change {
		f(&a.Spec)
	}
	return a
}

// following replaces the metrics by one of an average value per pod.
func following(m autoscalingv2.MetricSpec) func(*autoscalingv2.HorizontalPodAutoscalerSpec) {
	return func(s *autoscalingv2.HorizontalPodAutoscalerSpec) { s.Metrics = []autoscalingv2.MetricSpec{m} }
}

func perPod(q string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse(q))}
}

func requesting(cpu string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

func (c *cluster) autoscaler(name string) *autoscalingv2.HorizontalPodAutoscaler {
	c.t.Helper()
	a, err := client.For[*autoscalingv2.HorizontalPodAutoscaler](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// autoscaled describes the status of an autoscaler.
func (c *cluster) autoscaled(name string) string {
	a := c.autoscaler(name)
	out := fmt.Sprintf("%d of %d", a.Status.CurrentReplicas, a.Status.DesiredReplicas)
	for _, t := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale, autoscalingv2.ScalingActive, autoscalingv2.ScalingLimited} {
		if cond := conditions.Find(a.Status.Conditions, t); cond != nil {
			out += fmt.Sprintf(" %s=%s", cond.Reason, cond.Status)
		}
	}
	return out
}

// isAutoscaled waits for the status of an autoscaler.
func (c *cluster) isAutoscaled(name, want string) {
	c.t.Helper()
	got := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got = c.autoscaled(name); got == want {
			return
		}
	}
	c.t.Fatalf("the autoscaler %s is\n %s, want\n %s\n%v\n%s", name, got, want, c.autoscaler(name).Status, c.dump())
}

func (c *cluster) replicas(name string) int32 { return *c.deployment(name).Spec.Replicas }

// A Deployment grows with its load to the maximum, and returns to the minimum five minutes
// after the load has gone.
func TestDeploymentFollowsItsLoad(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		m := c.serveMetrics("metrics.k8s.io/v1beta1")
		m.set(50)
		create(c, deploymentOf("web", 1, "v1", requesting("100m")))
		create(c, autoscalerOf("web"))
		c.isAutoscaled("web", "1 of 1 ReadyForNewScale=True ValidMetricFound=True DesiredWithinRange=False")
		a := c.autoscaler("web")
		if n := a.Status.ObservedGeneration; n == nil || *n != a.Generation || a.Status.LastScaleTime != nil {
			t.Errorf("the status is %+v", a.Status)
		}
		if got := a.Status.CurrentMetrics[0].Resource.Current; *got.AverageUtilization != 50 || got.AverageValue.String() != "50m" {
			t.Errorf("the current metric is %+v", got)
		}
		c.quiet()

		m.set(1000)
		c.until(30*time.Second, "the scale is four, as fast as it may", func() bool { return c.replicas("web") == 4 })
		c.until(time.Minute, "the scale is at its maximum", func() bool { return c.replicas("web") == 6 })
		c.isAutoscaled("web", "6 of 6 ReadyForNewScale=True ValidMetricFound=True TooManyReplicas=True")
		if c.autoscaler("web").Status.LastScaleTime == nil || !c.event("SuccessfulRescale") {
			t.Error("the change is not reported")
		}
		c.quiet()

		m.set(10)
		began := time.Now()
		c.until(20*time.Second, "the lower recommendation is seen", func() bool { return strings.Contains(c.autoscaled("web"), "ScaleDownStabilized=True") })
		c.until(6*time.Minute, "the scale is at its minimum", func() bool { return c.replicas("web") == 1 })
		// The window begins with the last higher recommendation, up to a period of 15 s earlier.
		if d := time.Since(began); d < 5*time.Minute-15*time.Second {
			t.Errorf("the scale shrank after %s", d)
		}
		c.isAutoscaled("web", "1 of 1 ReadyForNewScale=True ValidMetricFound=True DesiredWithinRange=False")
		c.quiet()
	})
}

// The behavior of an autoscaler limits how fast it scales, and for how long it waits.
func TestBehaviorPacesTheScale(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m := c.serveMetrics("metrics.k8s.io/v1beta1")
		m.set(1000)
		create(c, deploymentOf("web", 1, "v1", requesting("100m")))
		create(c, autoscalerOf("web", func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
			one := []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 1, PeriodSeconds: 60}}
			s.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleUp: &autoscalingv2.HPAScalingRules{Policies: one}, ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0)), Policies: one},
			}
		}))
		step := func(want int32) {
			t.Helper()
			c.until(90*time.Second, fmt.Sprintf("the scale is %d", want), func() bool { return c.replicas("web") == want })
		}
		step(2)
		for n := int32(3); n <= 4; n++ {
			began := time.Now()
			step(n)
			if d := time.Since(began); d < 59*time.Second {
				t.Errorf("the scale went to %d after %s", n, d)
			}
		}
		time.Sleep(time.Minute) // what was added within the period may be removed beside the one
		m.set(0)
		began := time.Now()
		step(3)
		step(2)
		if d := time.Since(began); d > 2*time.Minute {
			t.Errorf("shrinking took %s", d)
		}
	})
}

// Custom and external metrics come through APIServices; v1beta1 of custom metrics is used
// where v1beta2 is not served.
func TestCustomAndExternalMetrics(t *testing.T) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		inCluster(t, 1, func(t *testing.T, c *cluster) {
			m := c.serveMetrics("custom.metrics.k8s.io/"+version, "external.metrics.k8s.io/v1beta1")
			m.setValue("namespaces/default/pods/*/requests", "30")
			m.setValue("namespaces/default/deployments.apps/object/hits", "40")
			m.setValue("namespaces/default/metrics/tenants", "20")
			m.setValue("namespaces/default/queue", "15+15")
			app := metav1.LabelSelector{MatchLabels: map[string]string{"verb": "GET"}}
			metric := func(name string) autoscalingv2.MetricIdentifier {
				return autoscalingv2.MetricIdentifier{Name: name, Selector: &app}
			}
			for name, spec := range map[string]autoscalingv2.MetricSpec{
				"pods": {Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: metric("requests"), Target: perPod("10")}},
				"object": {Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
					Metric: metric("hits"), Target: perPod("10"), DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "object"}}},
				"space": {Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
					Metric: metric("tenants"), Target: perPod("10"), DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "default"}}},
				"external": {Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: metric("queue"), Target: perPod("10")}},
			} {
				create(c, deploymentOf(name, 1, "v1"))
				create(c, autoscalerOf(name, following(spec)))
			}
			c.isAutoscaled("object", "4 of 4 ReadyForNewScale=True ValidMetricFound=True DesiredWithinRange=False")
			c.isAutoscaled("space", "2 of 2 ReadyForNewScale=True ValidMetricFound=True DesiredWithinRange=False")
			c.isAutoscaled("external", "3 of 3 ReadyForNewScale=True ValidMetricFound=True DesiredWithinRange=False")
			c.isAutoscaled("pods", "6 of 6 ReadyForNewScale=True ValidMetricFound=True TooManyReplicas=True") // 30 for each, however many
			for _, asked := range []string{
				"/apis/custom.metrics.k8s.io/" + version + "/namespaces/default/pods/%2A/requests?labelSelector=app%3Dpods&metricLabelSelector=verb%3DGET",
				"/apis/custom.metrics.k8s.io/" + version + "/namespaces/default/deployments.apps/object/hits?metricLabelSelector=verb%3DGET",
				"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue?labelSelector=verb%3DGET",
			} {
				if !m.was(asked) && !m.was(strings.ReplaceAll(asked, "%2A", "*")) {
					t.Errorf("%s was not asked, but %s", asked, m)
				}
			}
			if got := c.autoscaler("external").Status.CurrentMetrics[0].External.Current.AverageValue; got.String() != "10" {
				t.Errorf("the current value is %s", got)
			}
			c.quiet()
		})
	}
}

// scalable is a definition of a kind with the scale subresource.
func scalable() *apiextensionsv1.CustomResourceDefinition {
	count := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	object := func(fields map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: fields}
	}
	schema := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec":   object(map[string]apiextensionsv1.JSONSchemaProps{"replicas": count}),
		"status": object(map[string]apiextensionsv1.JSONSchemaProps{"replicas": count, "selector": {Type: "string"}}),
	})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "farms.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "farms", Kind: "Farm"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
					SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: new(".status.selector"),
				}},
			}},
		},
	}
}

const farms = "/apis/example.com/v1/namespaces/default/farms"

// The target may be a custom resource: whatever has a scale.
func TestCustomResourceIsScaled(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m := c.serveMetrics("external.metrics.k8s.io/v1beta1")
		m.setValue("namespaces/default/queue", "50")
		toFarm := func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
			s.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Farm", Name: "farm"}
			following(autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: perPod("10"),
			}})(s)
		}
		create(c, autoscalerOf("farm", toFarm))
		c.isAutoscaled("farm", "0 of 0 FailedGetScale=False")
		create(c, scalable())
		contentTypes := map[string]string{"POST": "application/json", "PATCH": "application/merge-patch+json"}
		do := func(method, path, body string) []byte {
			t.Helper()
			answer, _, err := c.Do(t.Context(), client.Request{Method: method, Path: path, Body: []byte(body), Header: http.Header{"Content-Type": {contentTypes[method]}, "Accept": {"application/json"}}})
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		c.until(time.Minute, "the kind is served", func() bool {
			_, _, err := c.Do(t.Context(), client.Request{Path: farms})
			return err == nil
		})
		do("POST", farms, `{"apiVersion":"example.com/v1","kind":"Farm","metadata":{"name":"farm"},"spec":{"replicas":2},"status":{"replicas":2}}`)
		c.isAutoscaled("farm", "2 of 0 SucceededGetScale=True InvalidSelector=False")
		do("PATCH", farms+"/farm", `{"status":{"selector":"app=farm"}}`)
		c.until(time.Minute, "the resource is scaled", func() bool {
			var farm struct{ Spec struct{ Replicas int } }
			if err := json.Unmarshal(do("GET", farms+"/farm", ""), &farm); err != nil {
				t.Fatal(err)
			}
			return farm.Spec.Replicas == 5
		})
	})
}

// What keeps an autoscaler from scaling is in its conditions and in events.
func TestAutoscalerSaysWhatFails(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, daemonSetOf("agent", "v1"))
		target := func(apiVersion, kind, name string) func(*autoscalingv2.HorizontalPodAutoscalerSpec) {
			return func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
				s.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}
			}
		}
		create(c, deploymentOf("web", 2, "v1", requesting("100m")))
		create(c, deploymentOf("both", 1, "v1", requesting("100m")))
		create(c, deploymentOf("off", 0, "v1"))
		rows := map[string]struct {
			change                 func(*autoscalingv2.HorizontalPodAutoscalerSpec)
			reason, event, message string
		}{
			"none":    {target("apps/v1", "Deployment", "none"), "FailedGetScale", "FailedGetScale", `the HPA controller was unable to get the target's current scale: deployments.apps "none" not found`},
			"unknown": {target("example.com/v1", "Thing", "x"), "FailedGetScale", "FailedGetScale", `no matches for kind "Thing" in group "example.com"`},
			"version": {target("a/b/c", "Thing", "x"), "FailedGetScale", "FailedGetScale", "unexpected GroupVersion string: a/b/c"},
			"agent":   {target("apps/v1", "DaemonSet", "agent"), "FailedGetScale", "FailedGetScale", "daemonsets.apps does not implement the scale subresource"},
			"node":    {target("v1", "Node", "node-0"), "FailedGetScale", "FailedGetScale", "nodes is not namespaced"},
			"web":     {target("apps/v1", "Deployment", "web"), "FailedGetResourceMetric", "FailedGetResourceMetric", "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: "},
			"both-1":  {target("apps/v1", "Deployment", "both"), "AmbiguousSelector", "AmbiguousSelector", "pods by selector app=both are controlled by multiple HPAs: [default/both-1 default/both-2]"},
			"both-2":  {target("apps/v1", "Deployment", "both"), "AmbiguousSelector", "AmbiguousSelector", "pods by selector app=both are controlled by multiple HPAs: [default/both-1 default/both-2]"},
			"off":     {target("apps/v1", "Deployment", "off"), "ScalingDisabled", "", "scaling is disabled since the replica count of the target is zero"},
		}
		for name, row := range rows {
			create(c, autoscalerOf(name, row.change))
		}
		time.Sleep(40 * time.Second)
		for name, row := range rows {
			a := c.autoscaler(name)
			if !slices.ContainsFunc(a.Status.Conditions, func(cond autoscalingv2.HorizontalPodAutoscalerCondition) bool {
				return cond.Status == corev1.ConditionFalse && cond.Reason == row.reason && strings.Contains(cond.Message, row.message)
			}) {
				t.Errorf("%s: no condition has the reason %s and the message %q: %+v", name, row.reason, row.message, a.Status.Conditions)
			}
			if row.event != "" && !c.event(row.event) {
				t.Errorf("%s: there is no event %s", name, row.event)
			}
		}
		edit(c, "off", func(d *appsv1.Deployment) { *d.Spec.Replicas = 9 })
		c.until(time.Minute, "the maximum holds without metrics", func() bool { return c.replicas("off") == 6 })
	})
}

// TestAutoscalingCrashes kills the controllers between any two writes, drops requests and
// responses, and lets watches lag and break, while load comes and goes. The scale must
// never leave its limits, and the end must be the same as without faults.
func TestAutoscalingCrashes(t *testing.T) {
	want := autoscalingStory(t, 0)
	eachSeed(t, func(t *testing.T, s uint64) {
		if got := autoscalingStory(t, s); got != want {
			t.Errorf("go test -run TestAutoscalingCrashes -seed %d ends in another state\n got %s\nwant %s", s, got, want)
		}
	})
}

// autoscalingStory lets a load come and go with the faults of a seed (0: none), and returns
// what the autoscaler did.
func autoscalingStory(t *testing.T, seed uint64) (state string) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		m := c.serveMetrics("metrics.k8s.io/v1beta1")
		m.set(50)
		c.background(c.keepsLimits)
		create(c, deploymentOf("web", 2, "v1", requesting("100m")))
		create(c, autoscalerOf("web", func(s *autoscalingv2.HorizontalPodAutoscalerSpec) { *s.MinReplicas = 2 }))
		stop := c.disturb(seed)
		for _, load := range []int64{1000, 150, 600, 220} {
			m.set(load)
			time.Sleep(15 * time.Minute)
			state += fmt.Sprintf("%d replicas for %d\n", c.replicas("web"), load)
		}
		stop()
		c.quiet()
		state += c.autoscaled("web") + "\n" + c.state()
	})
	return state
}

// keepsLimits fails the test if the scale of the Deployment web is ever outside of 2 to 6.
func (c *cluster) keepsLimits(ctx context.Context) error {
	i := informer.New(client.For[*appsv1.Deployment](c.Client), informer.Options{})
	i.OnChange(func(_, d *appsv1.Deployment) {
		if d != nil && (*d.Spec.Replicas < 2 || *d.Spec.Replicas > 6) {
			c.t.Errorf("the scale is %d", *d.Spec.Replicas)
		}
	})
	return i.Run(ctx)
}
