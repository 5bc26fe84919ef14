package runtimeclass_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/runtimeclass"
)

func TestRuntimeClass(t *testing.T) {
	overhead := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	anything, gpu := corev1.Toleration{Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	objects := admissiontest.Objects{
		"runtimeclasses/plain": &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "runc"},
		"runtimeclasses/vm": &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: overhead},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "true"}, Tolerations: []corev1.Toleration{gpu}}},
	}
	for name, row := range map[string]struct {
		reason string
		class  string
		spec   corev1.PodSpec
		want   corev1.PodSpec
		err    string
	}{
		"None":  {reason: "as most pods"},
		"Plain": {reason: "a class without further demands", class: "plain"},
		"Adds": {
			reason: "what the class demands",
			class:  "vm",
			want:   corev1.PodSpec{Overhead: overhead, NodeSelector: map[string]string{"vm": "true"}, Tolerations: []corev1.Toleration{gpu}},
		},
		"Merges": {
			reason: "what the pod has stays, and what it tolerates already is not added",
			class:  "vm",
			spec:   corev1.PodSpec{Overhead: overhead, NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{anything}},
			want:   corev1.PodSpec{Overhead: overhead, NodeSelector: map[string]string{"disk": "ssd", "vm": "true"}, Tolerations: []corev1.Toleration{anything}},
		},
		"Missing":  {reason: "upstream's text", class: "gone", err: `pods "p" is forbidden: pod rejected: RuntimeClass "gone" not found`},
		"Conflict": {reason: "no node matches", class: "vm", spec: corev1.PodSpec{NodeSelector: map[string]string{"vm": "no"}}, err: `pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = true; pod.spec.nodeSelector[vm] = no`},
		"OtherOverhead": {
			reason: "the overhead is the class's", class: "vm", spec: corev1.PodSpec{Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			err: `pods "p" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`,
		},
		"OverheadOfNothing": {
			reason: "no class accounts for it", spec: corev1.PodSpec{Overhead: overhead},
			err: `pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: row.spec}
			if row.class != "" {
				pod.Spec.RuntimeClassName, row.want.RuntimeClassName = &row.class, &row.class
			}
			a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Name: "p", Object: pod}
			err := admission.Chain{runtimeclass.New(admission.Host{Objects: objects})}.Admit(t.Context(), a, nil)
			switch {
			case row.err != "":
				if err == nil || err.Error() != row.err {
					t.Errorf("%s\ngot  %v\nwant %s", row.reason, err, row.err)
				}
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(row.want, pod.Spec); diff != "" {
					t.Errorf("%s\n%s", row.reason, diff)
				}
			}
		})
	}
}
