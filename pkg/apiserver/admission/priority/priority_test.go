package priority_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/priority"
	"podium/pkg/apiserver/registry"
)

// The plugin decides before validation, so these are Forbidden even in a pod
// with other errors.
func TestPriorityClasses(t *testing.T) {
	never, lower := new(corev1.PreemptNever), new(corev1.PreemptLowerPriority)
	for name, row := range map[string]struct {
		reason string
		change func(*corev1.Pod)
		want   string // the error; "": allowed
	}{
		"Nothing":   {reason: "as most pods", change: func(*corev1.Pod) {}},
		"Class":     {reason: "every cluster has it", change: func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }},
		"SameValue": {reason: "as kubectl get -o yaml prints it", change: func(p *corev1.Pod) { p.Spec.Priority = new(int32(0)) }},
		"UnknownClass": {
			reason: "upstream's status and text",
			change: func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.Containers = "gold", nil },
			want:   `pods "p" is forbidden: no PriorityClass with name gold was found`,
		},
		"OtherValue": {
			reason: "a value without its class",
			change: func(p *corev1.Pod) { p.Spec.Priority = new(int32(7)) },
			want:   `pods "p" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name`,
		},
		"LowerPriority": {reason: "the policy of pods without a class", change: func(p *corev1.Pod) { p.Spec.PreemptionPolicy = lower }},
		"Never": {
			reason: "only a class can say so",
			change: func(p *corev1.Pod) { p.Spec.PreemptionPolicy = never },
			want:   `pods "p" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name`,
		},
		"Gentle": {reason: "the policy of its class", change: func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = "gentle", never }},
		"NeverOfClass": {
			reason: "the class preempts",
			change: func(p *corev1.Pod) {
				p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = "system-cluster-critical", never
			},
			want: `pods "p" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}}}
			row.change(pod)
			err := admit(t, admission.Create, pod, nil)
			if row.want == "" && (err != nil || pod.Spec.Priority == nil) || row.want != "" && (!apierrors.IsForbidden(err) || err.Error() != row.want) {
				t.Errorf("%s\ngot  %v\nwant %s", row.reason, err, row.want)
			}
		})
	}
}

// A client may omit the priority in an update.
func TestUpdateKeepsPriority(t *testing.T) {
	old, next := &corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(7))}}, &corev1.Pod{}
	if err := admit(t, admission.Update, next, old); err != nil || next.Spec.Priority == nil || *next.Spec.Priority != 7 {
		t.Errorf("priority %v, error %v", next.Spec.Priority, err)
	}
}

func admit(t *testing.T, op admission.Operation, pod, old *corev1.Pod) error {
	t.Helper()
	a := &admission.Attributes{Operation: op, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: pod.Namespace, Name: pod.Name, Object: pod, Old: old}
	return admission.Chain{priority.New(admission.Host{Objects: classes()})}.Admit(t.Context(), a, nil)
}

// classes returns the classes of every cluster and one that does not preempt.
func classes(more ...*schedulingv1.PriorityClass) admissiontest.Objects {
	out := admissiontest.Objects{}
	gentle := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "gentle"}, Value: 5, PreemptionPolicy: new(corev1.PreemptNever)}
	for _, c := range append(append(registry.SystemPriorityClasses(), gentle), more...) {
		out["priorityclasses/"+c.Name] = c
	}
	return out
}

// The default class is that of pods without one, and there is only one.
func TestDefaultClass(t *testing.T) {
	class := func(name string, value int32) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: true, PreemptionPolicy: new(corev1.PreemptNever)}
	}
	chain := admission.Chain{priority.New(admission.Host{Objects: classes(class("usual", 7), class("higher", 9))})}
	pod := &corev1.Pod{}
	a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Object: pod}
	if err := chain.Admit(t.Context(), a, nil); err != nil || pod.Spec.PriorityClassName != "usual" || *pod.Spec.Priority != 7 || *pod.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("the pod without a class has %+v, %v", pod.Spec, err)
	}
	write := func(op admission.Operation, name string) error {
		return chain.Admit(t.Context(), &admission.Attributes{Operation: op, Resource: schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), Name: name, Object: class(name, 1), Old: class(name, 1)}, nil)
	}
	const want = `priorityclasses.scheduling.k8s.io "new" is forbidden: PriorityClass usual is already marked as default. Only one default can exist`
	if err := write(admission.Create, "new"); err == nil || err.Error() != want {
		t.Errorf("a second default: %v", err)
	}
	if err := write(admission.Update, "usual"); err != nil {
		t.Errorf("an update of the default: %v", err)
	}
}
