package registry_test

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

// No rule of a kind panics, whatever a client sends, as a new object or as an
// update of itself.
func FuzzKinds(f *testing.F) {
	s := scheme.New()
	kinds, versions := map[string]*registry.Kind{}, map[string]*registry.Version{}
	for _, k := range registry.Kinds(s, registry.Config{Store: memory.New(), ServiceCIDR: netip.MustParsePrefix("10.0.0.0/16"),
		NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now}) {
		for _, v := range k.Served() {
			kinds[v.GroupVersionKind.String()], versions[v.GroupVersionKind.String()] = k, v
		}
		for i, media := range []string{scheme.JSON, scheme.Protobuf} {
			data, err := s.Encode(k.New(), media)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, i == 0)
		}
	}
	for _, sample := range readSamples(f).json {
		f.Add(sample, true)
	}
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Service","spec":{"type":"LoadBalancer","clusterIP":"x","ports":[{"port":1,"nodePort":-1}],"externalIPs":["::"],"sessionAffinity":"ClientIP","sessionAffinityConfig":{}}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]},"strategy":{"rollingUpdate":{"maxSurge":"x%"}},"template":{}}}`,
		`{"apiVersion":"apps/v1","kind":"ControllerRevision","data":{"a":[1]},"revision":-1}`,
		`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"annotations":{"deprecated.daemonset.template.generation":"x"}},"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":"1%"}},"template":{}}}`,
		`{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"volumeClaimTemplates":[{"metadata":{"name":"a"}},{}],"template":{"spec":{"containers":[{"volumeMounts":[{"name":"a"}]}]}}}}`,
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Object\",\"object\":{}},null]","autoscaling.alpha.kubernetes.io/behavior":"{\"ScaleUp\":null}"}}}`,
		`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","spec":{"metrics":[{"type":"Pods"},{"type":"Object","object":{},"pods":{}}],"behavior":{"scaleUp":{"policies":[]}}},"status":{"currentMetrics":[{"type":"Pods"}]}}`,
		`{"apiVersion":"batch/v1","kind":"CronJob","spec":{"schedule":"TZ=0","timeZone":"../x","jobTemplate":{"spec":{"manualSelector":true,"selector":{}}}}}`,
		`{"apiVersion":"batch/v1","kind":"CronJob","spec":{"schedule":"@every 1h1m","timeZone":"Etc/UTC"}}`,
		`{"apiVersion":"batch/v1","kind":"Job","spec":{"completionMode":"Indexed","successPolicy":{"rules":[{"succeededIndexes":"1-2,4","succeededCount":9}]},"podFailurePolicy":{"rules":[{"onExitCodes":{"values":[0]}}]}},"status":{"completedIndexes":"0-","failedIndexes":"1"}}`,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","spec":{"minAvailable":"x","maxUnavailable":"101%"}}`,
		`{"apiVersion":"v1","kind":"ReplicationController","spec":{"selector":{"a":"b"}}}`,
		`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","endpoints":[{}],"ports":[{}]}`,
		`{"apiVersion":"v1","kind":"Node","spec":{"podCIDRs":["x"],"taints":[{}]},"status":{"capacity":{"a/b":"1m"}}}`,
		`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/dockerconfigjson","data":{".dockerconfigjson":"e30="}}`,
	} {
		f.Add([]byte(text), true)
	}
	b := holding(map[string][]scheme.Object{"serviceaccounts": {&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}})
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		media := scheme.Protobuf
		if text {
			media = scheme.JSON
		}
		decoded, gvk, err := s.Decode(data, media, nil)
		if err != nil || kinds[gvk.String()] == nil {
			return
		}
		k, obj := kinds[gvk.String()], decoded.(scheme.Object)
		if v := versions[gvk.String()]; v.ToStorage != nil {
			if obj, err = v.ToStorage(obj); err != nil {
				return
			}
		}
		obj.SetNamespace("")
		if k.Default != nil {
			k.Default(obj)
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			pod.Spec.ServiceAccountName = "default" // no other service account exists
		}
		old := obj.DeepCopyObject().(scheme.Object)
		for _, before := range []scheme.Object{nil, old} {
			if k.Prepare != nil && k.Prepare(t.Context(), b, obj, before) != nil {
				continue
			}
			if k.Validate == nil || len(k.Validate(obj, before)) > 0 || k.Allocate == nil {
				continue
			}
			if undo, err := k.Allocate(t.Context(), obj, before, false); err == nil && undo != nil {
				undo(t.Context())
			}
		}
		if k.Warnings != nil {
			k.Warnings(obj, old)
		}
		if k.Fields != nil {
			k.Fields(obj)
		}
		if k.Review != nil {
			_, _ = k.Review(t.Context(), b, &request.User{Name: "somebody"}, obj)
			return
		}
		if cells := k.Row(obj, today); len(cells) != len(k.Columns) {
			t.Fatalf("%d cells, %d columns", len(cells), len(k.Columns))
		}
		for _, v := range k.Versions {
			if _, err := v.FromStorage(obj); err != nil {
				t.Fatal(err)
			}
		}
		for _, sub := range k.Subresources {
			if sub.PreparePart != nil && sub.PreparePart(t.Context(), obj, old) == nil && sub.ValidatePart != nil {
				sub.ValidatePart(obj, old)
			}
			if sub.View != nil {
				_, _ = sub.View(obj)
			}
		}
		if k.BeforeDelete != nil {
			_, _ = k.BeforeDelete(obj, &metav1.DeleteOptions{}, today)
		}
	})
}
