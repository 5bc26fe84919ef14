package staticpods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubelet "podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/podspec"
)

func TestWhichMirrorsStay(t *testing.T) {
	mirror := func(hash string, deleted bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-n1", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: hash}}}
		if deleted {
			p.DeletionTimestamp = new(metav1.Time)
		}
		return p
	}
	static := func(ending bool) *kubelet.StaticPod {
		return &kubelet.StaticPod{Ending: ending, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-n1", Annotations: map[string]string{podspec.HashAnnotation: "a"}}}}
	}
	for name, row := range map[string]struct {
		static *kubelet.StaticPod
		mirror *corev1.Pod
		stays  bool
	}{
		"its own":                          {static(false), mirror("a", false), true},
		"of another version":               {static(false), mirror("b", false), false},
		"deleted by another client":        {static(false), mirror("a", true), false},
		"of a version that is still ended": {static(true), mirror("b", false), true},
		"of no static pod":                 {nil, mirror("a", false), false},
	} {
		if got := fits(row.static, row.mirror); got != row.stays {
			t.Errorf("a mirror %s stays: %t, want %t", name, got, row.stays)
		}
	}
}

func TestStatusIsWrittenToTheMirror(t *testing.T) {
	for name, row := range map[string]struct{ patch, want string }{
		"of the static pod": {`{"metadata":{"uid":"static"},"status":{"phase":"Running"}}`, `{"metadata":{"uid":"mirror"},"status":{"phase":"Running"}}`},
		"of another pod":    {`{"metadata":{"uid":"other"},"status":{"phase":"Running"}}`, `{"metadata":{"uid":"other"},"status":{"phase":"Running"}}`},
	} {
		got, err := redirect([]byte(row.patch), "static", "mirror")
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, row.want)
		}
	}
}

// A late event does not replace a mirror that is newer, and the end of an old mirror is not
// that of its successor.
func TestLateEvents(t *testing.T) {
	version := func(uid types.UID, rv string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-n1", UID: uid, ResourceVersion: rv, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "a"}}}
	}
	m := NewMirrors(Config{})
	m.observe(nil, version("one", "5"))
	m.learn(version("two", "9"))
	m.observe(version("one", "5"), version("one", "7"))
	m.observe(version("one", "7"), nil)
	if got := m.mirror(types.NamespacedName{Name: "web-n1"}); got == nil || got.UID != "two" {
		t.Errorf("the mirror is %v", got)
	}
	m.observe(version("two", "9"), nil)
	if got := m.mirror(types.NamespacedName{Name: "web-n1"}); got != nil {
		t.Errorf("the mirror is %v", got)
	}
}
