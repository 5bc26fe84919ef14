package registry_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/registry"
)

func TestPodTemplates(t *testing.T) {
	r := newRig(t, "10.96.0.0/16", registry.PortRange{First: 30000, Last: 32767})
	k := r.kinds["podtemplates"]
	template := func(change func(*corev1.PodTemplate)) *corev1.PodTemplate {
		out := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}}
		if change != nil {
			change(out)
		}
		k.Default(out)
		return out
	}
	old := template(nil)
	if err := k.Prepare(t.Context(), holding(nil), old, nil); err != nil || old.Generation != 1 || len(k.Validate(old, nil)) != 0 {
		t.Errorf("a new template has generation %d, %v, %v", old.Generation, err, texts(k.Validate(old, nil)))
	}
	for name, c := range map[string]struct {
		change     func(*corev1.PodTemplate)
		generation int64
		errs       []string
	}{
		"Same":     {func(p *corev1.PodTemplate) { p.Labels = map[string]string{"a": "b"} }, 1, nil},
		"Changed":  {func(p *corev1.PodTemplate) { p.Template.Spec.Containers[0].Image = "j" }, 2, nil},
		"NoImage":  {func(p *corev1.PodTemplate) { p.Template.Spec.Containers[0].Image = "" }, 2, []string{"template.spec.containers[0].image: Required value"}},
		"BadLabel": {func(p *corev1.PodTemplate) { p.Template.Labels["app"] = "-" }, 2, []string{"template.labels"}},
	} {
		next := template(c.change)
		err := k.Prepare(t.Context(), holding(nil), next, old)
		errs := texts(k.Validate(next, old))
		if err != nil || next.Generation != c.generation || len(errs) != len(c.errs) {
			t.Errorf("%s: generation %d, %v, %v", name, next.Generation, err, errs)
		}
		for i, want := range c.errs {
			if i < len(errs) && errs[i][:len(want)] != want {
				t.Errorf("%s: got %s, want %s", name, errs[i], want)
			}
		}
	}
	if diff := cmp.Diff([]any{"t", "c", "i", "app=x"}, k.Row(old, time.Now())); diff != "" || len(k.Columns) != 4 {
		t.Error(diff)
	}
}
