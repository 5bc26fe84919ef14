package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	inDefault  = "/namespaces/default/"
	rcs        = "/api/v1" + inDefault + "replicationcontrollers"
	statefuls  = "/apis/apps/v1" + inDefault + "statefulsets"
	revisions  = "/apis/apps/v1" + inDefault + "controllerrevisions"
	jobs       = "/apis/batch/v1" + inDefault + "jobs"
	cronJobs   = "/apis/batch/v1" + inDefault + "cronjobs"
	scalersV1  = "/apis/autoscaling/v1" + inDefault + "horizontalpodautoscalers"
	scalersV2  = "/apis/autoscaling/v2" + inDefault + "horizontalpodautoscalers"
	budgets    = "/apis/policy/v1" + inDefault + "poddisruptionbudgets"
	someLabels = `"metadata":{"labels":{"app":"x"}}`
	somePod    = `"spec":{"containers":[{"name":"c","image":"i"}]}`
)

// Whatever a client writes to the workload kinds, the answer is an error that explains
// itself, never a 500, and nothing can be stored that cannot be read.
func TestBadInputOfWorkloads(t *testing.T) {
	w := start(t)
	bodies := []string{
		`{"metadata":{"name":"%s"}}`,
		`{"metadata":{"name":"%s"},"spec":null,"status":null,"data":null}`,
		`{"metadata":{"name":"%s"},"spec":{},"status":{},"data":7}`,
		`{"metadata":{"name":"%s"},"spec":{"selector":{},"template":{},"jobTemplate":{},"schedule":"TZ=","timeZone":"/"}}`,
		`{"metadata":{"name":"%s"},"spec":{"selector":{"matchExpressions":[{"key":"-","operator":"In"}]},"template":{"spec":{"containers":[{}],"restartPolicy":"Never"}}}}`,
		`{"metadata":{"name":"%s"},"spec":{"replicas":-1,"parallelism":-1,"completionMode":"Indexed","successPolicy":{"rules":[{"succeededIndexes":"0"}]},"podFailurePolicy":{},"template":{"spec":{"restartPolicy":"Never"}}}}`,
		`{"metadata":{"name":"%s"},"spec":{"schedule":"*/0 99 * * *","jobTemplate":{"spec":{"successPolicy":{"rules":[{"succeededCount":1}]},"completionMode":"Indexed"}}}}`,
		`{"metadata":{"name":"%s"},"spec":{"maxReplicas":1,"metrics":[{"type":"Object"},{"resource":{}},{"pods":{},"external":{}}],"behavior":{}}}`,
		`{"metadata":{"name":"%s","annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Pods\"},null]","autoscaling.alpha.kubernetes.io/behavior":"[","autoscaling.alpha.kubernetes.io/conditions":"{}"}},"spec":{"maxReplicas":1}}`,
		`{"metadata":{"name":"%s"},"spec":{"minAvailable":"x","maxUnavailable":"9999999999999999999%%"}}`,
		`{"metadata":{"name":"%s"},"spec":{"volumeClaimTemplates":[{},{"metadata":{"name":"A"}}],"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"x"}}}}`,
		`{"metadata":{"name":"%s"},"spec":[]}`, `{"metadata":{"name":"%s"},"spec":{"template":[]}}`,
	}
	for _, path := range []string{rcs, statefuls, "/apis/apps/v1" + inDefault + "daemonsets", revisions, jobs, cronJobs, scalersV1, scalersV2, budgets} {
		for i, body := range bodies {
			name := fmt.Sprintf("a%d", i)
			for _, r := range []struct{ method, path, contentType string }{
				{"POST", path, jsonType},
				{"PATCH", path + "/" + name + "?fieldManager=m&force=true", applyType},
				{"PATCH", path + "/" + name, mergeType},
				{"PUT", path + "/" + name + "/status", jsonType},
				{"PATCH", path + "/" + name + "/scale", mergeType},
				{"GET", path, ""},
			} {
				text := fmt.Sprintf(body, name)
				if r.method == "GET" {
					text = ""
				}
				if rec := w.do(r.method, r.path, r.contentType, text); rec.Code >= 500 {
					t.Errorf("%s %s %s: %d %s", r.method, r.path, text, rec.Code, rec.Body)
				}
			}
		}
	}
}

func TestAutoscalersInBothVersions(t *testing.T) {
	w := start(t)
	const target = `"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}`
	body := `{"metadata":{"name":"a","annotations":{"mine":"yes"}},"spec":{"maxReplicas":5,` + target + `,
		"behavior":{"scaleDown":{"stabilizationWindowSeconds":60}},
		"metrics":[{"type":"Pods","pods":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"1500m"}}},
			{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}}]}}`
	rec := w.do("POST", scalersV2, jsonType, body)
	if got := rec.Header().Get("Warning"); rec.Code != 201 || got != "" {
		t.Errorf("%d, warning %q: %s", rec.Code, got, rec.Body)
	}
	v1 := must[autoscalingv1.HorizontalPodAutoscaler](w, 200, "GET", scalersV1+"/a", "", "")
	want := map[string]string{
		"mine": "yes",
		"autoscaling.alpha.kubernetes.io/metrics": `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1500m"}}]`,
		"autoscaling.alpha.kubernetes.io/behavior": `{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15},{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null},` +
			`"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}`,
	}
	for name, text := range want {
		if v1.Annotations[name] != text {
			t.Errorf("%s is %s, want %s", name, v1.Annotations[name], text)
		}
	}
	if n := v1.Spec.TargetCPUUtilizationPercentage; n == nil || *n != 60 || len(v1.Annotations) != len(want) {
		t.Errorf("in v1: %+v", v1)
	}
	must[any](w, 200, "PATCH", scalersV1+"/a", mergeType, `{"spec":{"maxReplicas":7}}`)
	v2 := must[autoscalingv2.HorizontalPodAutoscaler](w, 200, "GET", scalersV2+"/a", "", "")
	if len(v2.Spec.Metrics) != 2 || v2.Spec.Metrics[0].Pods.Target.AverageValue.String() != "1500m" || v2.Spec.MaxReplicas != 7 ||
		*v2.Spec.Behavior.ScaleDown.StabilizationWindowSeconds != 60 || len(v2.Spec.Behavior.ScaleUp.Policies) != 2 || len(v2.Annotations) != 1 {
		t.Errorf("after an update in v1: %+v", v2)
	}
	v2 = must[autoscalingv2.HorizontalPodAutoscaler](w, 200, "PATCH", scalersV2+"/a/status", mergeType,
		`{"status":{"currentReplicas":2,"conditions":[{"type":"AbleToScale","status":"True"}],"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageValue":"1","averageUtilization":40}}}]}}`)
	if v2.Status.CurrentReplicas != 2 {
		t.Errorf("the status is %+v", v2.Status)
	}
	v1 = must[autoscalingv1.HorizontalPodAutoscaler](w, 200, "GET", scalersV1+"/a", "", "")
	if n := v1.Status.CurrentCPUUtilizationPercentage; n == nil || *n != 40 || !strings.Contains(v1.Annotations["autoscaling.alpha.kubernetes.io/conditions"], "AbleToScale") {
		t.Errorf("the status in v1: %+v, %v", v1.Status, v1.Annotations)
	}
	must[any](w, 201, "POST", scalersV1, jsonType, `{"metadata":{"name":"b"},"spec":{"maxReplicas":5,`+target+`}}`)
	v2 = must[autoscalingv2.HorizontalPodAutoscaler](w, 200, "GET", scalersV2+"/b", "", "")
	if len(v2.Spec.Metrics) != 1 || *v2.Spec.Metrics[0].Resource.Target.AverageUtilization != 80 || *v2.Spec.MinReplicas != 1 {
		t.Errorf("defaults: %+v", v2.Spec)
	}
	if group := must[metav1.APIGroup](w, 200, "GET", "/apis/autoscaling", "", ""); group.PreferredVersion.Version != "v2" || len(group.Versions) != 2 {
		t.Errorf("discovery: %+v", group)
	}
}

// Replication controllers and jobs keep their pods unless the client asks otherwise.
func TestDeleteThatOrphansByDefault(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", rcs, jsonType, `{"metadata":{"name":"a"},"spec":{"template":{`+someLabels+`,`+somePod+`}}}`)
	for _, name := range []string{"a", "b"} {
		must[any](w, 201, "POST", jobs, jsonType, `{"metadata":{"name":"`+name+`"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
	}
	rc := w.do("DELETE", rcs+"/a", "", "")
	if rc.Code != 200 || rc.Header().Get("Warning") != "" {
		t.Errorf("%d, warning %q", rc.Code, rc.Header().Get("Warning"))
	}
	if got := must[corev1.ReplicationController](w, 200, "GET", rcs+"/a", "", ""); !slices.Equal(got.Finalizers, []string{metav1.FinalizerOrphanDependents}) {
		t.Errorf("finalizers %v", got.Finalizers)
	}
	if rec := w.do("DELETE", jobs+"/a", "", ""); !strings.Contains(rec.Header().Get("Warning"), "child pods are preserved by default when jobs are deleted") {
		t.Errorf("%d, warning %q", rec.Code, rec.Header().Get("Warning"))
	}
	if got := must[batchv1.Job](w, 200, "GET", jobs+"/a", "", ""); !slices.Equal(got.Finalizers, []string{metav1.FinalizerOrphanDependents}) {
		t.Errorf("finalizers %v", got.Finalizers)
	}
	if rec := w.do("DELETE", jobs+"/b?propagationPolicy=Background", "", ""); rec.Code != 200 || rec.Header().Get("Warning") != "" {
		t.Errorf("%d, warning %q", rec.Code, rec.Header().Get("Warning"))
	}
	must[metav1.Status](w, 404, "GET", jobs+"/b", "", "")
}

func TestScaleOfWorkloads(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", rcs, jsonType, `{"metadata":{"name":"a"},"spec":{"template":{`+someLabels+`,`+somePod+`}}}`)
	must[any](w, 201, "POST", statefuls, jsonType, `{"metadata":{"name":"a"},"spec":{"serviceName":"s","selector":{"matchLabels":{"app":"x"}},"template":{`+someLabels+`,`+somePod+`}}}`)
	for _, path := range []string{rcs, statefuls} {
		scale := must[autoscalingv1.Scale](w, 200, "GET", path+"/a/scale", "", "")
		if scale.Spec.Replicas != 1 || scale.Status.Selector != "app=x" || scale.APIVersion != "autoscaling/v1" {
			t.Errorf("%s: %+v", path, scale)
		}
		must[any](w, 200, "PATCH", path+"/a/scale", mergeType, `{"spec":{"replicas":4}}`)
		must[metav1.Status](w, 422, "PATCH", path+"/a/scale", mergeType, `{"spec":{"replicas":-4}}`)
	}
	if got := must[corev1.ReplicationController](w, 200, "GET", rcs+"/a", "", ""); *got.Spec.Replicas != 4 || got.Generation != 2 {
		t.Errorf("%d replicas, generation %d", *got.Spec.Replicas, got.Generation)
	}
	if got := must[appsv1.StatefulSet](w, 200, "GET", statefuls+"/a", "", ""); *got.Spec.Replicas != 4 || got.Generation != 2 {
		t.Errorf("%d replicas, generation %d", *got.Spec.Replicas, got.Generation)
	}
}

// The data of a revision keeps its meaning through a patch of the metadata.
func TestControllerRevisionIsPatched(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", revisions, jsonType, `{"metadata":{"name":"a"},"revision":1,"data":{"b":1,"a":{"d":2,"c":3}}}`)
	must[any](w, 200, "PATCH", revisions+"/a", smpType, `{"metadata":{"labels":{"a":"b"}}}`)
	must[any](w, 200, "PATCH", revisions+"/a", mergeType, `{"revision":2}`)
	must[metav1.Status](w, 422, "PATCH", revisions+"/a", mergeType, `{"data":{"b":2}}`)
}
