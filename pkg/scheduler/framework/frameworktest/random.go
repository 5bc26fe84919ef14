package frameworktest

import (
	"fmt"
	"math/rand/v2"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/snapshot"
)

// words returns the values of random strings: few, so that fields of pods and nodes are often
// equal.
func words(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[corev1.NodeSelectorOperator](), reflect.TypeFor[metav1.LabelSelectorOperator]():
		return []string{"In", "NotIn", "Exists", "DoesNotExist"}
	case reflect.TypeFor[corev1.TolerationOperator]():
		return []string{"", "Equal", "Exists"}
	case reflect.TypeFor[corev1.TaintEffect]():
		return []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	case reflect.TypeFor[corev1.UnsatisfiableConstraintAction]():
		return []string{"DoNotSchedule", "ScheduleAnyway"}
	case reflect.TypeFor[corev1.NodeInclusionPolicy]():
		return []string{"Honor", "Ignore"}
	case reflect.TypeFor[corev1.Protocol]():
		return []string{"TCP", "UDP"}
	case reflect.TypeFor[corev1.ContainerRestartPolicy]():
		return []string{"Always"}
	case reflect.TypeFor[corev1.ResourceName]():
		return []string{"cpu", "memory", "ephemeral-storage", "example.com/device"}
	}
	return []string{"a", "b", "n1", ""}
}

// fill sets v to a random value. Lists, maps and pointers in it are empty at times, more often
// at greater depth.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	if !v.CanSet() {
		return
	}
	v.SetZero()
	if v.Type() == reflect.TypeFor[resource.Quantity]() {
		v.Set(reflect.ValueOf(*resource.NewQuantity(int64(r.IntN(3)), resource.DecimalSI)))
		return
	}
	empty := r.IntN(10) < depth
	switch v.Kind() {
	case reflect.String:
		list := words(v.Type())
		v.SetString(list[r.IntN(len(list))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(1 + r.IntN(2)))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), depth+1)
		}
	case reflect.Pointer:
		if !empty {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		if !empty {
			v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(2), 2))
			for i := range v.Len() {
				fill(r, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if !empty {
			fillMap(r, v, depth)
		}
	}
}

func fillMap(r *rand.Rand, v reflect.Value, depth int) {
	v.Set(reflect.MakeMap(v.Type()))
	for range 1 + r.IntN(2) {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(r, key, depth+1)
		fill(r, value, depth+1)
		v.SetMapIndex(key, value)
	}
}

// mutate sets one random part of v to another random value.
func mutate(r *rand.Rand, v reflect.Value, depth int) {
	if depth > 1 && r.IntN(3) == 0 {
		fill(r, v, depth)
		return
	}
	switch {
	case v.Kind() == reflect.Struct && v.NumField() > 0:
		mutate(r, v.Field(r.IntN(v.NumField())), depth+1)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		mutate(r, v.Elem(), depth+1)
	case v.Kind() == reflect.Slice && v.Len() > 0:
		mutate(r, v.Index(r.IntN(v.Len())), depth+1)
	default:
		fill(r, v, depth)
	}
}

// Pod returns a random pod. Its fields have few different values.
func Pod(r *rand.Rand, name string) *corev1.Pod {
	p := &corev1.Pod{}
	fill(r, reflect.ValueOf(&p.Spec).Elem(), 0)
	fill(r, reflect.ValueOf(&p.Labels).Elem(), 1)
	p.Namespace, p.Name, p.UID = words(reflect.TypeFor[string]())[r.IntN(2)], name, types.UID(name)
	if r.IntN(2) == 0 {
		p.Spec.NodeName = ""
	}
	if r.IntN(8) == 0 {
		p.DeletionTimestamp = &metav1.Time{}
	}
	return p
}

// Node returns a random node that can run up to 110 pods.
func Node(r *rand.Rand, name string) *corev1.Node {
	n := &corev1.Node{}
	fill(r, reflect.ValueOf(&n.Labels).Elem(), 1)
	fill(r, reflect.ValueOf(&n.Spec.Taints).Elem(), 4)
	fill(r, reflect.ValueOf(&n.Status.Allocatable).Elem(), 0)
	fill(r, reflect.ValueOf(&n.Status.Images).Elem(), 0)
	for i := range n.Status.Images {
		image := &n.Status.Images[i]
		image.SizeBytes *= 500 << 20
		for j := range image.Names {
			image.Names[j] += ":latest"
		}
	}
	n.Name, n.Spec.Unschedulable = name, r.IntN(4) == 0
	n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	return n
}

// Change adds, changes or removes a random node, pod, namespace or Service of the snapshot.
func Change(r *rand.Rand, s *snapshot.Snapshot) {
	word := func() string { return words(reflect.TypeFor[string]())[r.IntN(2)] }
	if r.IntN(8) == 0 {
		s.SetNamespace(word(), map[string]string{word(): word()})
		s.SetService(word(), word(), map[string]string{word(): word()})
	}
	name := fmt.Sprint("n", r.IntN(6))
	switch p := Pod(r, fmt.Sprint("p", r.IntN(20))); r.IntN(6) {
	case 0, 1:
		s.SetNode(Node(r, name))
	case 2:
		s.RemoveNode(name)
	case 3:
		s.Remove(p.UID)
	default:
		p.Spec.NodeName = name
		s.Assign(p)
	}
}
