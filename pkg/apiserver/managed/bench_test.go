package managed_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/managed"
)

func BenchmarkCreate(b *testing.B) {
	_, own := typesOf(b, corev1.SchemeGroupVersion)
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(benchedPod), pod); err != nil {
		b.Fatal(err)
	}
	typ := own.Type(corev1.SchemeGroupVersion.WithKind("Pod"))
	empty := &corev1.Pod{}
	w := managed.Write{
		Manager: "a", APIVersion: "v1", Create: true, Untracked: managed.Without("status"),
		Pair: func(string) (managed.Pair, error) {
			return managed.Pair{Type: typ, Old: reflect.ValueOf(empty).Elem(), New: reflect.ValueOf(pod).Elem()}, nil
		},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Fields(nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

const benchedPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","labels":{"app":"web","hash":"x"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"u"}]},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1.2.3",
	"ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"MODE","value":"production"},{"name":"A","value":"B"}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/web"}],
	"livenessProbe":{"httpGet":{"path":"/","port":80},"periodSeconds":10},"readinessProbe":{"httpGet":{"path":"/","port":80},"periodSeconds":10}}],
	"volumes":[{"name":"config","configMap":{"name":"web"}}]}}`
