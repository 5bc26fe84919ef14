package history

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"
)

// HashLabel is the label of StatefulSets' revisions with the hash of their data. Revisions
// of DaemonSets have appsv1.DefaultDaemonSetUniqueLabelKey.
const HashLabel = "controller.kubernetes.io/hash"

// Template returns the pod template that a revision holds.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("decode controller revision %s: %w", r.Name, err)
	}
	if patch.Spec.Template == nil {
		return nil, fmt.Errorf("controller revision %s holds no pod template", r.Name)
	}
	return patch.Spec.Template, nil
}

// patch returns the patch that replaces a pod template. Equal templates have equal patches.
func patch(t *corev1.PodTemplateSpec) []byte {
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err == nil {
		template["$patch"] = "replace"
		var data []byte
		if data, err = json.Marshal(map[string]any{"spec": map[string]any{"template": template}}); err == nil {
			return data
		}
	}
	panic(fmt.Sprintf("history: a pod template does not encode: %v", err)) // it came out of JSON or protobuf
}

// hashOf returns the hash of a revision's data. collisions changes the hash if another
// revision has the same one.
func hashOf(data []byte, collisions *int32) string {
	h := fnv.New32a()
	h.Write(data)
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions)))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// revisionOf returns a new revision of a template of owner, without an owner reference.
func revisionOf(owner metav1.Object, s Source, hashLabel string, number int64) *appsv1.ControllerRevision {
	data := patch(s.Template)
	hash := hashOf(data, s.Collisions)
	labels := maps.Clone(s.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hashLabel] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: owner.GetName() + "-" + hash, Namespace: owner.GetNamespace(),
			Labels: labels, Annotations: maps.Clone(owner.GetAnnotations()),
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	}
}

// holds reports whether the revision is one of the template. It compares the meaning: the
// server may have reordered the data.
func holds(r *appsv1.ControllerRevision, t *corev1.PodTemplateSpec) bool {
	have, err := Template(r)
	return err == nil && equality.Semantic.DeepEqual(have, t)
}

// find returns the newest revision of the template, nil if there is none. all is sorted.
func find(all []*appsv1.ControllerRevision, t *corev1.PodTemplateSpec) *appsv1.ControllerRevision {
	for _, r := range slices.Backward(all) {
		if holds(r, t) {
			return r
		}
	}
	return nil
}

// next returns the number of the revision after all, which is sorted.
func next(all []*appsv1.ControllerRevision) int64 {
	if len(all) == 0 {
		return 1
	}
	return all[len(all)-1].Revision + 1
}

// oldestFirst sorts revisions by number. Equal numbers are sorted by age and name.
func oldestFirst(a, b *appsv1.ControllerRevision) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// excess returns the oldest revisions, so that limit of those that are not live remain. A
// negative limit keeps all.
func excess(all []*appsv1.ControllerRevision, live sets.Set[string], limit int32) []*appsv1.ControllerRevision {
	old := slices.DeleteFunc(slices.Clone(all), func(r *appsv1.ControllerRevision) bool {
		return live.Has(r.Name) || r.DeletionTimestamp != nil
	})
	if n := len(old) - int(limit); limit >= 0 && n > 0 {
		return old[:n]
	}
	return nil
}
