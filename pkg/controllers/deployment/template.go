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

// hashOf returns the hash of a template, for a replica set's name and labels. It hashes the
// template's JSON, which does not change when new API versions add fields that the template
// does not use. collisions changes the hash if another template has the same one.
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

// sameTemplate compares two templates without the hash label.
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

// split returns the replica set of d's current template, nil if there is none, and the
// others. If there are several, the oldest is the current one.
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
