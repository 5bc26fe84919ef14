package history

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func templateOf(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

func TestRevisionHoldsItsTemplate(t *testing.T) {
	owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", Annotations: map[string]string{"kubernetes.io/change-cause": "v1"}}}
	r := revisionOf(owner, Source{Template: templateOf("a<b")}, HashLabel, 3)
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"a\u003cb","name":"main","resources":{}}]}}}}`
	if string(r.Data.Raw) != want {
		t.Errorf("the data is\n%s, want\n%s", r.Data.Raw, want)
	}
	hash := r.Labels[HashLabel]
	if r.Name != "web-"+hash || r.Namespace != "ns" || r.Revision != 3 || r.Labels["app"] != "web" || r.Annotations["kubernetes.io/change-cause"] != "v1" {
		t.Errorf("the revision is %+v", r)
	}
	if !holds(r, templateOf("a<b")) || holds(r, templateOf("c")) {
		t.Error("the revision does not hold exactly its template")
	}
	r.Data.Raw = []byte(strings.Replace(want, `"$patch":"replace",`, "", 1))
	if !holds(r, templateOf("a<b")) {
		t.Error("other JSON of the same template does not count as equal")
	}
	if other := revisionOf(owner, Source{Template: templateOf("a<b"), Collisions: new(int32(1))}, HashLabel, 3); other.Name == r.Name {
		t.Error("a collision does not change the name")
	}
	if _, err := Template(&appsv1.ControllerRevision{}); err == nil {
		t.Error("no data counts as a template")
	}
}

func TestExcess(t *testing.T) {
	all := []*appsv1.ControllerRevision{}
	for _, name := range []string{"a", "b", "c", "d"} {
		all = append(all, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	all[2].DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		live  []string
		limit int32
		want  string
	}{
		"oldest first":             {limit: 1, want: "a b"},
		"live ones do not count":   {live: []string{"a"}, limit: 1, want: "b"},
		"zero keeps the live ones": {live: []string{"b"}, limit: 0, want: "a d"},
		"negative keeps all":       {limit: -1},
		"within the limit":         {limit: 5},
	} {
		var got []string
		for _, r := range excess(all, sets.New(test.live...), test.limit) {
			got = append(got, r.Name)
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
