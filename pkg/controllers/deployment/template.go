package deployment

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"
)

// hashOf names a template in a replica set's name and labels. It is taken over
// the template's JSON, which does not change when new versions of the API add
// fields that this template does not use. collisions makes another name, for
// when the first is taken by another template.
func hashOf(t *corev1.PodTemplateSpec, collisions *int32) string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("deployment: a pod template does not encode: %v", err)) // it came out of JSON or protobuf
	}
	h := fnv.New32a()
	h.Write(data)
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions)))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// sameTemplate compares two templates, but for the label that carries the hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(unhashed(a), unhashed(b))
}

func unhashed(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		return t
	}
	t = t.DeepCopy()
	delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return t
}

// split finds the replica set of d's present template, nil if there is none.
// Should there be several, the oldest is it.
func split(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	sets = oldestFirst(sets)
	for _, rs := range sets {
		if current == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			current = rs
		} else {
			old = append(old, rs)
		}
	}
	return current, old
}

func oldestFirst(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	sets = slices.Clone(sets)
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return compareNames(a, b)
	})
	return sets
}
