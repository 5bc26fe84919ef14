package budget_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/budget"
)

// Numbers outside of quantities may have any form.
func TestQuantities(t *testing.T) {
	long := strings.Repeat("1", 101)
	for _, c := range []struct {
		name, text string
		wrong      bool
	}{
		{"an ordinary quantity", `{"spec":{"containers":[{"resources":{"limits":{"cpu":"100m","memory":"1e3"}}}]}}`, false},
		{"a label that looks like one", `{"metadata":{"labels":{"commit":"12e45678"},"annotations":{"n":"` + long + `"}}}`, false},
		{"both", `{"metadata":{"labels":{"commit":"12e45678"}},"spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}`, false},
		{"a small number", `{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-999999999"}}}]}}`, true},
		{"in a map of an init container", `{"spec":{"initContainers":[{"resources":{"requests":{"x/y":"1E-9999"}}}]}}`, true},
		{"a large number", `{"spec":{"overhead":{"cpu":"1e+9999999"}}}`, true},
		{"many digits", `{"spec":{"overhead":{"cpu":"` + long + `"}}}`, true},
		{"many digits of a fraction", `{"spec":{"overhead":{"cpu":"0.` + long + `"}}}`, true},
		{"behind a pointer, in an inlined struct", `{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e-99999"}}]}}`, true},
		{"a number of JSON", `{"spec":{"overhead":{"cpu":1e-99999999}}}`, true},
		{"a key that occurs twice", `{"spec":{"overhead":{"cpu":"1e-99999999","cpu":"1"}}}`, true},
		{"spaces", `{"spec":{"overhead":{"cpu":"  1e-9999999"}}}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := budget.QuantitiesJSON([]byte(c.text), &corev1.Pod{}); (err != nil) != c.wrong {
				t.Errorf("JSON: %v", err)
			}
			var tree map[string]any
			if err := json.Unmarshal([]byte(c.text), &tree); err != nil {
				t.Fatal(err)
			}
			if c.name == "a number of JSON" || c.name == "a key that occurs twice" {
				return // does not exist in a tree
			}
			if err := budget.QuantitiesTree(tree, &corev1.Pod{}); (err != nil) != c.wrong {
				t.Errorf("tree: %v", err)
			}
		})
	}
}

func TestQuantitiesInProtobuf(t *testing.T) {
	pod := func(change func(*corev1.Pod)) []byte {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "12e45678", Labels: map[string]string{"12e45678": "12e45678"}}}
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "12e45678"}}
		p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("1e33")}
		change(p)
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if err := budget.QuantitiesProto(pod(func(*corev1.Pod) {}), &corev1.Pod{}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"map": func(p *corev1.Pod) { p.Spec.Overhead["memory"] = resource.MustParse("1234567m") },
		"container": func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1234567m")}}}}
		},
		"pointer": func(p *corev1.Pod) {
			q := resource.MustParse("1234567m")
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &q}}}}
		},
	} {
		data := []byte(strings.ReplaceAll(string(pod(change)), "1234567m", "1e-99999"))
		if err := budget.QuantitiesProto(data, &corev1.Pod{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzQuantitiesProto(f *testing.F) {
	f.Add([]byte("\x0a\x081e-99999"))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = budget.QuantitiesProto(data, &corev1.Pod{}) })
}

func FuzzQuantitiesJSON(f *testing.F) {
	f.Add([]byte(`{"spec":{"overhead":{"cpu":"1e-99999"}}}`))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = budget.QuantitiesJSON(data, &corev1.Pod{}) })
}
