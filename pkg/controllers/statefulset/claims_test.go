package statefulset

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

const (
	keep = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	drop = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

func retention(whenScaled, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) {
		s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: whenScaled, WhenDeleted: whenDeleted}
	}
}

func TestClaimOwners(t *testing.T) {
	other := metav1.OwnerReference{Kind: "Other", UID: "other", Controller: new(true)}
	set := metav1.OwnerReference{Kind: "StatefulSet", UID: "set"}
	for name, test := range map[string]struct {
		scaled, deleted appsv1.PersistentVolumeClaimRetentionPolicyType
		pod             string
		have            []metav1.OwnerReference
		want            string
	}{
		"kept":                         {scaled: keep, deleted: keep, pod: "web-0"},
		"kept from now on":             {scaled: keep, deleted: keep, pod: "web-0", have: []metav1.OwnerReference{set}},
		"deleted with the set":         {scaled: keep, deleted: drop, pod: "web-0", want: "StatefulSet set"},
		"also of a condemned pod":      {scaled: keep, deleted: drop, pod: "web-1", want: "StatefulSet set"},
		"deleted when scaled, stays":   {scaled: drop, deleted: keep, pod: "web-0"},
		"deleted when scaled, goes":    {scaled: drop, deleted: keep, pod: "web-1", want: "Pod pod"},
		"both, stays":                  {scaled: drop, deleted: drop, pod: "web-0", want: "StatefulSet set"},
		"both, goes":                   {scaled: drop, deleted: drop, pod: "web-1", have: []metav1.OwnerReference{set}, want: "Pod pod"},
		"another controller's is kept": {scaled: drop, deleted: drop, pod: "web-1", have: []metav1.OwnerReference{other, set}, want: "Other other"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: test.pod, UID: "pod"}}
		var got []string
		for _, r := range claimOwners(setOf(1, retention(test.scaled, test.deleted)), pod, test.have) {
			got = append(got, r.Kind+" "+string(r.UID))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// world runs the controller alone on an API in memory.
type world struct {
	*client.Client
	t *testing.T
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{clienttest.New().Client(t), t}
		log := slog.New(slog.DiscardHandler)
		shared := informers.New(w.Client, log)
		r, err := Spec(1, NewMetrics(nil)).New(controller.Context{Client: w.Client, Informers: shared, Log: log, Metrics: loop.NewMetrics(prometheus.NewRegistry())})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- shared.Run(ctx) }()
		go func() { done <- r.Run(ctx) }()
		defer func() { cancel(); <-done; <-done }()
		f(t, w)
	})
}

func list[T scheme.Object](w *world) []T {
	l, err := client.For[T](w.Client).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return l.Items
}

// claims describes the claims, with their controllers.
func (w *world) claims() string {
	var out []string
	for _, c := range list[*corev1.PersistentVolumeClaim](w) {
		owner := ""
		if ref := metav1.GetControllerOf(c); ref != nil {
			owner = " of " + ref.Name
		}
		out = append(out, c.Name+owner)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (w *world) expect(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("the %s are %q, want %q", what, got, want)
	}
}

func (w *world) edit(change func(*appsv1.StatefulSet)) {
	w.t.Helper()
	sets := client.For[*appsv1.StatefulSet](w.Client).In("ns")
	set, err := sets.Get(w.t.Context(), "web")
	if err == nil {
		change(set)
		_, err = sets.Update(w.t.Context(), set)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Minute)
}

func withData(s *appsv1.StatefulSetSpec) {
	s.PodManagementPolicy = appsv1.ParallelPodManagement
	s.RevisionHistoryLimit = new(int32(10))
	s.Template.Labels = s.Selector.MatchLabels
	s.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"tier": "db"}}}}
}

func TestClaims(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := client.For[*appsv1.StatefulSet](w.Client).Create(t.Context(), setOf(2, withData, retention(drop, drop))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.expect("claims", w.claims(), "data-web-0 of web, data-web-1 of web")
		claim := list[*corev1.PersistentVolumeClaim](w)[0]
		w.expect("labels", fmt.Sprint(claim.Labels), "map[app:web tier:db]")
		pods := list[*corev1.Pod](w)
		if len(pods) != 2 || len(pods[1].Spec.Volumes) != 2 || pods[1].Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-web-1" || pods[1].Spec.Volumes[1].Name != "scratch" {
			t.Fatalf("the pods are %+v", pods)
		}

		// A pending pod gets a claim that has been lost.
		claims := client.For[*corev1.PersistentVolumeClaim](w.Client).In("ns")
		if _, err := client.For[*corev1.Pod](w.Client).In("ns").UpdateStatus(t.Context(), func() *corev1.Pod {
			p := pods[0].DeepCopy()
			p.Status.Phase = corev1.PodPending
			return p
		}()); err != nil {
			t.Fatal(err)
		}
		if err := claims.Delete(t.Context(), "data-web-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.expect("claims", w.claims(), "data-web-0 of web, data-web-1 of web")

		w.edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = new(int32(1)) })
		w.expect("claims", w.claims(), "data-web-0 of web, data-web-1 of web-1")
		w.expect("pods", fmt.Sprint(len(list[*corev1.Pod](w))), "1")

		// The new web-1 waits until the claim of the former one is gone.
		w.edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = new(int32(2)) })
		w.expect("pods", fmt.Sprint(len(list[*corev1.Pod](w))), "1")
		if err := claims.Delete(t.Context(), "data-web-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.expect("claims", w.claims(), "data-web-0 of web, data-web-1 of web")
		w.expect("pods", fmt.Sprint(len(list[*corev1.Pod](w))), "2")

		w.edit(func(set *appsv1.StatefulSet) { retention(keep, keep)(&set.Spec) })
		w.expect("claims", w.claims(), "data-web-0, data-web-1")
	})
}
