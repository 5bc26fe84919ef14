package scheme_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/scheme"
)

func TestEveryKindCrossesEveryWire(t *testing.T) {
	s := scheme.New()
	for _, k := range s.Kinds() {
		for _, media := range []string{scheme.JSON, scheme.YAML, scheme.Protobuf} {
			t.Run(k.Resource+" "+media, func(t *testing.T) {
				obj := k.New()
				obj.SetName("x")
				obj.SetLabels(map[string]string{"a": "b"})
				data, err := s.Encode(obj, media)
				if err != nil {
					t.Fatal(err)
				}
				got, gvk, err := s.DecodeStrict(data, media, nil)
				if err != nil {
					t.Fatalf("%v in %s", err, data)
				}
				if *gvk != k.GroupVersionKind {
					t.Errorf("decoded as %v, want %v", gvk, k.GroupVersionKind)
				}
				if diff := cmp.Diff(runtime.Object(obj), got); diff != "" {
					t.Errorf("changed on the way (-sent +got):\n%s", diff)
				}
			})
		}
	}
}

func TestKindsAreFoundByResourceKindAndType(t *testing.T) {
	s := scheme.New()
	pod := scheme.KindOf[*corev1.Pod](s)
	if s.ByResource(pod.GVR()) != pod || s.ByKind(pod.GroupVersionKind) != pod {
		t.Error("one kind, several entries")
	}
	if pod.Singular != "pod" || !pod.Namespaced {
		t.Errorf("pods are %+v", pod)
	}
}

func TestStrictDecodingNamesTheField(t *testing.T) {
	s := scheme.New()
	body := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"spec":{"bogus":1}}`)
	_, _, err := s.DecodeStrict(body, scheme.JSON, nil)
	if !runtime.IsStrictDecodingError(err) {
		t.Fatalf("got %v, want a strict decoding error", err)
	}
	if _, _, err := s.Decode(body, scheme.JSON, nil); err != nil {
		t.Fatalf("lenient: %v", err)
	}
}

func TestEncodeLeavesTheObjectAlone(t *testing.T) {
	s := scheme.New()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if _, err := s.Encode(pod, scheme.JSON); err != nil {
		t.Fatal(err)
	}
	if pod.Kind != "" {
		t.Error("Encode set the kind of a shared object")
	}
}

func FuzzDecode(f *testing.F) {
	s := scheme.New()
	for _, k := range s.Kinds() {
		for i, media := range []string{scheme.JSON, scheme.YAML, scheme.Protobuf} {
			data, err := s.Encode(k.New(), media)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, i)
		}
	}
	media := []string{scheme.JSON, scheme.YAML, scheme.Protobuf}
	f.Fuzz(func(t *testing.T, data []byte, which int) {
		m := media[uint(which)%3]
		obj, _, err := s.DecodeStrict(data, m, nil)
		if err != nil || obj == nil {
			return
		}
		if _, err := s.Encode(obj, m); err != nil {
			t.Fatalf("decoded but does not encode: %v", err)
		}
	})
}
